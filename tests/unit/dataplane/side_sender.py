"""A sender whose answers a test gives."""

from __future__ import annotations

from sparkmirror.dataplane.sending import SideWrite
from sparkmirror.kafka import messages
from sparkmirror.kafka.settings import ClientSettings


class FakeSender:
    """Keeps what it is given until it is told what came of it."""

    settings = ClientSettings("B", (("b", 9092),))

    def __init__(self) -> None:
        self.writes: list[SideWrite] = []
        self.takes = True

    def write(self, side: SideWrite) -> bool:
        if self.takes:
            self.writes.append(side)
        return self.takes

    def answer(self, code: int = messages.NONE) -> None:
        """The same answer to all that was written since the last."""
        writes, self.writes = self.writes, []
        for side in writes:
            side.owner.result(side.token, code, 0, None)

    def answer_up_to(self, most: int) -> None:
        """Take batches up to a size, and refuse larger ones."""
        writes, self.writes = self.writes, []
        for side in writes:
            is_small = len(side.batch) <= most
            code = messages.NONE if is_small else messages.MESSAGE_TOO_LARGE
            side.owner.result(side.token, code, 0, None)
