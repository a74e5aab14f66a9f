"""What a process of ours leaves when it crashes: no image of its memory, which holds keys, prompts and answers."""

import resource


def none_of_us() -> None:
    """From here on this process, and what it starts, dumps no core; what it has started before keeps its own limit."""
    _, high = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, high))
