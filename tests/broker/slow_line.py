"""A cable that delivers every frame a fixed time after it was sent: two network devices, and threads that carry the frames.

For kernels without `netem`. There is no limit on what is on the way, as on a long fat line.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import struct
import threading
import time

_SET_INTERFACE = 0x400454CA  # TUNSETIFF
_TAP_WITHOUT_HEAD = 0x1002  # IFF_TAP | IFF_NO_PI
_FRAME_BYTES = 2048


def new_end(name: str) -> int:
    """A network device of this name in the network of this thread, as a file of frames."""
    end = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(end, _SET_INTERFACE, struct.pack("16sH", name.encode(), _TAP_WITHOUT_HEAD))
    return end


class SlowLine:
    """The line between two ends, until `close`.

    Invariant: frames leave in the order they came, none before its time.
    """

    def __init__(self, near: int, far: int, delay_s: float) -> None:
        self._ends = near, far
        self._delay = delay_s
        for taken, given in ((near, far), (far, near)):
            under_way: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
            for work, end in ((self._take, taken), (self._give, given)):
                threading.Thread(target=work, args=(end, under_way), daemon=True).start()

    def _take(self, end: int, under_way: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        with contextlib.suppress(OSError):  # the device is gone
            while True:
                frame = os.read(end, _FRAME_BYTES)
                under_way.put((time.monotonic() + self._delay, frame))
        under_way.put((0.0, b""))

    def _give(self, end: int, under_way: queue.SimpleQueue[tuple[float, bytes]]) -> None:
        while True:
            due, frame = under_way.get()
            if not frame:
                return
            time.sleep(max(0.0, due - time.monotonic()))
            with contextlib.suppress(OSError):  # the device is down: the frame is lost
                os.write(end, frame)

    def close(self) -> None:
        for end in self._ends:
            os.close(end)
