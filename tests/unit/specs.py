"""The study's three variants, as tests of several modules need them."""

from dataclasses import replace

from server.spec import ServerSpec

TREE = {
    "speculative_algorithm": "EAGLE3",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 4,
    "speculative_num_draft_tokens": 16,
}
CHAIN = {**TREE, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4}
V1, V2 = {"SGLANG_ENABLE_SPEC_V2": "0"}, {"SGLANG_ENABLE_SPEC_V2": "1"}

BASELINE = ServerSpec(
    "sglang", "baseline", model_name="kimi_k25", model_path="/m", draft_path="/d", tp=8, python=("py",)
)
TOPK4_V1 = replace(BASELINE, variant="eagle_topk4_v1", args=TREE, env=V1)
TOPK1_V2 = replace(BASELINE, variant="eagle_topk1_v2", args=CHAIN, env=V2)
