"""A process that leaks a known amount: it touches `MIB_PER_MIN` more each minute, in 64 KiB pieces, until it is ended.

python leaking.py MIB_PER_MIN
"""

import sys
import time

PIECE = 64 * 1024


def main() -> None:
    """Grows for ever."""
    every_s, kept = 60 * PIECE / (float(sys.argv[1]) * 1024 * 1024), []
    due = time.monotonic()
    while True:
        kept.append(b"x" * PIECE)
        due += every_s
        time.sleep(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    main()
