"""A cable that takes its time: every frame between two new interfaces arrives so many milliseconds later.

`python cable.py NAME NAME MS`; it says "up" and carries frames until its end. For kernels without netem.
"""

import contextlib
import fcntl
import os
import queue
import struct
import sys
import threading
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME_BYTES_MAX = 65_536


def opened(name: str) -> int:
    """A new interface, seen from its cable."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return descriptor


def carry(source: int, target: int, delay_s: float) -> None:
    """Every frame of `source` to `target`, in their order."""
    under_way: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def arrive() -> None:
        while True:
            due_s, frame = under_way.get()
            time.sleep(max(0.0, due_s - time.monotonic()))
            with contextlib.suppress(OSError):  # an interface that is not up yet: a lost frame
                os.write(target, frame)

    threading.Thread(target=arrive, daemon=True).start()
    while True:
        frame = os.read(source, FRAME_BYTES_MAX)
        under_way.put((time.monotonic() + delay_s, frame))


if __name__ == "__main__":
    ends = [opened(name) for name in sys.argv[1:3]]
    print("up", flush=True)
    delay_s = float(sys.argv[3]) / 1000 / 2  # half of it on the way there, half on the way back
    threading.Thread(target=carry, args=(*ends, delay_s), daemon=True).start()
    carry(*reversed(ends), delay_s)
