"""Messages in several threads at once: the first use of each makes its class for a version, and its decoder."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.api_header import ResponseClassRegistry
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


class Registering:
    """Two threads that make the class of a message for a version: the last one registered is not the one that is kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._register: Callable[[Any], None] = ResponseClassRegistry.register_response_class
        self._entered = 0
        self._second_is_registered, self.first_is_done = threading.Event(), threading.Event()
        monkeypatch.setattr(
            ResponseClassRegistry, "register_response_class", staticmethod(self._registered)
        )

    def _registered(self, proxy: Any) -> None:
        self._entered += 1
        if self._entered == 1:
            self._second_is_registered.wait(MEETING_S)
            self._register(proxy)
        else:
            self._register(proxy)
            self._second_is_registered.set()
            self.first_is_done.wait(MEETING_S)


def test_two_threads_make_the_class_of_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the one that is known may be collected, and no answer of this kind could be read any more."""
    requests = [messages.MetadataRequest(topics=None) for _ in range(3)]
    for request in requests:
        messages.encode(request, VERSION, 7, "client")
    known = MetadataResponse._VERSIONS.pop(VERSION, None)
    meeting = Registering(monkeypatch)

    def decode(request: Any) -> None:
        messages.decode(request, ANSWER)
        meeting.first_is_done.set()

    threads = [threading.Thread(target=decode, args=(request,)) for request in requests[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del known
    gc.collect()
    assert messages.decode(requests[2], ANSWER)[1].controller_id == 1


def test_an_answer_that_is_read_keeps_no_other_thread_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whose broker sends a long one may be anybody: the worker's heartbeats go on beside it."""
    long, short = (messages.MetadataRequest(topics=None) for _ in range(2))
    for request in (long, short):
        messages.encode(request, VERSION, 7, "client")
    messages.decode(short, ANSWER)
    reading, other_is_read = threading.Event(), threading.Event()
    read_header = MetadataResponse.parse_header
    beside: list[bool] = []

    def parse_header(data: Any, version: int | None = None) -> Any:
        if threading.current_thread() is reader:
            reading.set()
            beside.append(other_is_read.wait(5))
        return read_header(data, VERSION)

    monkeypatch.setattr(MetadataResponse, "parse_header", parse_header)
    reader = threading.Thread(target=messages.decode, args=(long, ANSWER))
    reader.start()
    assert reading.wait(5)
    messages.decode(short, ANSWER)
    other_is_read.set()
    reader.join()
    assert beside == [True]


@given(st.sampled_from(messages.__all__), st.integers(0, 20), st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_bytes_that_are_no_answer_are_a_value_error(name: str, version: int, rest: bytes) -> None:
    kind = getattr(messages, name)
    request = kind()
    request.API_VERSION = min(version, kind.max_version)
    request.with_header(correlation_id=7, client_id="client")
    with contextlib.suppress(ValueError):
        messages.decode(request, b"\0\0\0\7" + rest)
