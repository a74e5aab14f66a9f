"""What a core of this machine does to a process that hardly uses it, a line a second until it is ended.

python waking.py CORE: seconds since 1970, the share of the time by which it woke up too late, CPU ms of a fixed work
"""

import os
import sys
import time

SLEEP_S, SLEEPS = 0.01, 100
WORK = 20_000


def main() -> None:
    """Wakes up, and measures, for ever."""
    os.sched_setaffinity(0, {int(sys.argv[1])})
    while True:
        began_s = time.monotonic()
        for _ in range(SLEEPS):
            time.sleep(SLEEP_S)
        took_s = time.monotonic() - began_s
        used_ns = time.process_time_ns()
        for number in range(WORK):
            number * number
        used_ns = time.process_time_ns() - used_ns
        print(time.time(), 1 - SLEEPS * SLEEP_S / took_s, used_ns / 1e6, flush=True)


if __name__ == "__main__":
    main()
