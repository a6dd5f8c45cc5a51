"""Messages in several threads at once: the first use of each makes its decoder."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.schemas.fields import struct

from sparkmirror.kafka import messages

VERSION = 12
MEETING_S = 0.5
# Correlation id, no tags; throttle time, no brokers, no cluster id, controller, no topics, no tags.
ANSWER = b"\0\0\0\7\0" + b"\0\0\0\0" + b"\1" + b"\0" + b"\0\0\0\1" + b"\1" + b"\0"


class Meeting:
    """Two threads that make a decoder meet in the midst of it; the second goes on when the first has done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._make = struct.CodegenContext
        self._entered = 0
        self._second_is_there, self.first_is_done = threading.Event(), threading.Event()
        monkeypatch.setattr(struct, "CodegenContext", self._context)

    def _context(self) -> Any:
        self._entered += 1
        if self._entered == 1:
            self._second_is_there.wait(MEETING_S)
        else:
            self._second_is_there.set()
            self.first_is_done.wait(MEETING_S)
        return self._make()


def test_two_threads_decode_the_first_answer_of_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stores of a worker are opened at once; a decoder that is made wrong stays wrong."""
    requests = [messages.MetadataRequest(topics=None) for _ in range(2)]
    for request in requests:
        messages.encode(request, VERSION, 7, "client")
    MetadataResponse._struct._compiled_encoders.clear()
    meeting = Meeting(monkeypatch)
    answers: list[Any] = []

    def decode(request: Any) -> None:
        try:
            answers.append(messages.decode(request, ANSWER)[1].controller_id)
        except TypeError as error:
            answers.append(error)
        meeting.first_is_done.set()

    threads = [threading.Thread(target=decode, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [1, 1]
