"""How many workers a load needs: by its streams, and by its tokens a second against what one worker measures exactly.

Pure. Knows nothing of nodes.
"""

import math

STREAMS_MAX = 1000  # of one worker; 4,000 were measured exactly, but a lost worker should not be all of them
SHARE_MAX = 0.5  # of the calibrated capacity: the verdict's limit is 0.7, and a level may be faster than expected
# Without a calibration: what a loop on a core of a small virtual machine has measured within a millisecond, halved.
EVENTS_PER_S = 13_000.0
# Before anything was measured a stream is taken to be as fast as that: more than the study's fastest.
STREAM_TOKENS_PER_S = 250.0


def needed(streams: int, tokens_per_s: float, capacity_events_per_s: float | None) -> int:
    """Workers for so many streams and tokens a second; at least one."""
    able = capacity_events_per_s or EVENTS_PER_S
    by_tokens = math.ceil(tokens_per_s / (SHARE_MAX * able))
    return max(1, math.ceil(streams / STREAMS_MAX), by_tokens)


def most(streams: int, cores: int, speed: float, capacity_events_per_s: float | None) -> int:
    """Workers that a cluster of this machine alone keeps room for, before anything was measured.

    `speed`: how many times faster than hardware the server is, of a simulator. Half the cores are the server's.
    """
    return min(max(1, cores // 2), needed(streams, streams * STREAM_TOKENS_PER_S * speed, capacity_events_per_s))
