"""SGLang's adaptive-speculation file for a variant that drafts at some batch sizes and not at others.

Pure. Offered where the baseline and a chain (topk 1) win in different ranges of concurrency. A key is the lowest batch
for which its steps hold; SGLang pads a batch to the next CUDA graph before it looks, so a boundary lies one above a
graph's size, wherever the key was put.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadgen.comparison import Contest
from loadgen.paired import Crossover
from server.spec import GRAPH_BATCHES

CHAINS = ("chain_overlap", "chain_sync")


@dataclass(frozen=True)
class Offer:
    """The file's content, the chain that it is made of, and in words where its boundaries act."""

    chain: str
    steps: int
    content: Mapping[str, Mapping[str, Sequence[int]]]
    words: tuple[str, ...]


def offer(contest: Contest, steps_of: Mapping[str, int]) -> Offer | None:
    """An adaptive file for the first chain that changes sides with the baseline; None where none does.

    `steps_of` has the draft steps of each variant that is a chain.
    """
    for name in contest.variants:
        found = contest.crossovers.get(name, ())
        if name in steps_of and found and all(level.concurrency for level in contest.levels):
            return _offer(name, steps_of[name], found)
    return None


def steps_of(launches: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Draft steps of each variant whose launch.json says that it ran as a chain of EAGLE's with topk 1."""
    found = {}
    for name, launch in launches.items():
        args = ((launch.get("config") or {}).get("variant") or {}).get("args") or {}
        if launch.get("spec_mode") in CHAINS and args.get("speculative_eagle_topk") == 1:
            found[name] = int(args["speculative_num_steps"])
    return found


def _offer(name: str, steps: int, crossovers: Sequence[Crossover]) -> Offer:
    content, words = {"1": {"candidate_steps": [0 if crossovers[0].rises else steps]}}, []
    for one in crossovers:
        wanted = one.at or math.sqrt(one.between[0] * one.between[1])
        key = _key(wanted)
        acts = _acts_from(key)
        content[str(key)] = {"candidate_steps": [steps if one.rises else 0]}
        does = f"{steps} draft steps" if one.rises else "no drafts"
        moved = "" if abs(acts - wanted) < 1 else f" and not from {wanted:.1f}"
        words.append(f"{does} from batch {acts} on{moved}: key {key}, since a batch is padded to the next CUDA graph")
    return Offer(name, steps, content, tuple(words))


def _key(wanted: float) -> int:
    """The graph whose boundary lies nearest to a batch, as a ratio; never the first, which is what holds below."""
    return min(GRAPH_BATCHES[1:], key=lambda size: abs(math.log(_acts_from(size) / wanted)))


def _acts_from(key: int) -> int:
    """The lowest batch that is padded to this graph's size or more."""
    return max(size for size in GRAPH_BATCHES if size < key) + 1
