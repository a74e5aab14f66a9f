"""A tiny random Llama with real weights and an EAGLE head that fits it, no training.

    python make_eagle.py TOKENIZER_FOLDER OUT SCALE        (TOKENIZER_FOLDER from make_tokenizer.py)

Writes OUT (the target) and OUT_eagle (the draft head); needs torch and transformers. The target's layers add only SCALE
times their usual share to the residual stream, so its next token is mostly a function of the last one; the head passes
the token's embedding through and adds nothing. SCALE sets the share of tokens that the head guesses right: 0.2 gives
0.31, 0.1 gives 0.60, 0.05 gives 0.78, 0.02 gives 0.92.
"""

import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

tokenizer, target, scale = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3])
head = target.with_name(target.name + "_eagle")
torch.manual_seed(0)
for folder in (target, head):
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder)
settings = json.loads((tokenizer / "config.json").read_text())
config = LlamaConfig(
    **{k: v for k, v in settings.items() if k not in ("model_type", "architectures", "torch_dtype")},
    tie_word_embeddings=False,
)
model = LlamaForCausalLM(config).float()
with torch.no_grad():
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight *= scale
        layer.mlp.down_proj.weight *= scale
model.save_pretrained(target)

hidden = config.hidden_size
draft = {k: v.detach().clone() for k, v in model.model.layers[0].state_dict().items() if "input_layernorm" not in k}
draft["self_attn.o_proj.weight"].zero_()
draft["mlp.down_proj.weight"].zero_()
weights = {
    "fc.weight": torch.cat([torch.eye(hidden), torch.zeros(hidden, hidden)], 1),
    "fc.bias": torch.zeros(hidden),
    "embed_tokens.weight": model.model.embed_tokens.weight.detach().clone(),
}
weights.update({"layers.0." + k: v for k, v in draft.items()})
save_file({k: v.contiguous() for k, v in weights.items()}, str(head / "model.safetensors"), metadata={"format": "pt"})
head_config = json.loads((target / "config.json").read_text())
head_config.update(architectures=["LlamaForCausalLMEagle"], num_hidden_layers=1)
(head / "config.json").write_text(json.dumps(head_config))

torch.set_grad_enabled(False)
right = total = 0
for _ in range(6):
    ids = torch.randint(3, config.vocab_size, (1, 12))
    for _ in range(48):
        ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    guess = model.lm_head(model.model.embed_tokens(ids[0, 12:-1])).argmax(-1)
    right += int((guess == ids[0, 13:]).sum())
    total += len(guess)
print(f"scale {scale}: the head guesses {right / total:.2f} of the target's greedy tokens")
