"""A proxy before a broker that shows less of it than there is: versions, APIs, ids; and how a broker fails to answer.

So an Apache broker looks like an older one, or like those of other vendors.
"""

from __future__ import annotations

import contextlib
import io
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from fastcrc.crc32 import iscsi as crc32c
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.producer import ProduceRequest

from sparkmirror.kafka import messages

PRODUCE, METADATA, SYNC_GROUP, API_VERSIONS = 0, 3, 14, 18
_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhih")  # API key, version, correlation id, length of the client id
_NO_ID = bytes(16)
_BATCH = struct.Struct(">qi")  # base offset, length of what follows
_CRC_AT, _CRC_OF, _PRODUCER_AT = 17, 21, 43
_NO_PRODUCER = struct.pack(">qhi", -1, -1, -1)  # producer id, epoch, base sequence


@dataclass(frozen=True, slots=True)
class Shown:
    """What a broker shows of itself. Keys are API keys."""

    most: Mapping[int, int] = field(default_factory=dict)
    """The highest versions that it offers; it closes the connection on requests of others, as brokers do."""
    hidden: frozenset[int] = frozenset()
    """APIs that it does not offer; it closes the connection on their requests, too."""
    refused: Mapping[int, int] = field(default_factory=dict)
    """The error with which it answers all requests of an API."""
    closing: frozenset[int] = frozenset()
    """APIs that it offers, and closes the connection on."""
    silent: frozenset[int] = frozenset()
    """APIs that it offers and never answers, nor anything that comes behind them on the connection."""
    has_topic_ids: bool = True
    """Whether its metadata name them, whatever versions of Fetch and Produce it offers."""
    has_assignments: bool = True
    """Whether members of groups get what their leader has assigned to them, or nothing."""
    keeps_producers: bool = True
    """Whether batches keep their producer ids and sequence numbers."""

    def takes(self, api: int, version: int) -> bool:
        is_offered = api not in self.hidden and version <= self.most.get(api, version)
        return is_offered and api not in self.closing


class BrokerProxy:
    """Listens for clients of one broker, until the block is left."""

    def __init__(self, broker: tuple[str, int], shown: Shown) -> None:
        self.shown = shown
        self.requests: set[tuple[int, int]] = set()
        """API keys and versions of the requests that were passed on."""
        self._broker = broker
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()

    def drop(self) -> None:
        """Close all connections, so that clients ask again what is offered."""
        with self._lock:
            left = list(self._open)
        for connection in left:
            _shut(connection)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError), socket.create_connection(self._broker, 10) as far:
            far.settimeout(None)
            with self._lock:
                self._open |= {near, far}
            asked: dict[int, tuple[int, int]] = {}
            answers = threading.Thread(target=self._answer, args=(far, near, asked))
            answers.start()
            with contextlib.suppress(OSError):
                self._ask(near, far, asked)
            _shut(far)
            answers.join()
            with self._lock:
                self._open -= {near, far}

    def _ask(
        self, near: socket.socket, far: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        """Pass requests on, until one is not taken."""
        is_silent = False
        for request in _frames(near):
            api, version, correlation, _ = _REQUEST.unpack_from(request)
            if api == API_VERSIONS and version > self.shown.most.get(api, version):
                _send(near, self._old_versions(correlation))
                continue
            if not self.shown.takes(api, version):
                return
            is_silent |= api in self.shown.silent
            if is_silent:
                continue
            self.requests.add((api, version))
            asked[correlation] = api, version
            if api == PRODUCE and not self.shown.keeps_producers:
                request = _without_producers(request, version)
            _send(far, request)

    def _answer(
        self, far: socket.socket, near: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        with contextlib.suppress(OSError):
            for answer in _frames(far):
                (correlation,) = _LENGTH.unpack_from(answer)
                _send(near, self._as_shown(answer, *asked.pop(correlation)))
        _shut(near)

    def _as_shown(self, answer: bytes, api: int, version: int) -> bytes:
        code = self.shown.refused.get(api)
        if code is not None:
            return _changed(answer, api, version, lambda found: _fail(found, code))
        if api == API_VERSIONS:
            return _changed(answer, api, version, self._limit)
        if api == METADATA and not self.shown.has_topic_ids:
            return _changed(answer, api, version, _forget_ids)
        if api == SYNC_GROUP and not self.shown.has_assignments:
            return _changed(answer, api, version, _assign_nothing)
        return answer

    def _limit(self, found: Any) -> None:
        shown = self.shown
        found.api_keys = [each for each in found.api_keys if each.api_key not in shown.hidden]
        for each in found.api_keys:
            each.max_version = min(each.max_version, shown.most.get(each.api_key, 1 << 14))

    def _old_versions(self, correlation: int) -> bytes:
        """What a broker answers that does not know this version of ApiVersions."""
        kind = ResponseClassRegistry._response_class_registry[API_VERSIONS]
        known = kind.ApiVersion(
            api_key=API_VERSIONS, min_version=0, max_version=self.shown.most[API_VERSIONS]
        )
        return _encoded(
            kind(error_code=messages.UNSUPPORTED_VERSION, api_keys=[known]), 0, correlation
        )


def _frames(connection: socket.socket) -> Iterator[bytes]:
    """What comes until the other side closes, without the lengths."""
    while len(head := _exactly(connection, _LENGTH.size)) == _LENGTH.size:
        (length,) = _LENGTH.unpack(head)
        frame = _exactly(connection, length)
        if len(frame) < length:
            return
        yield frame


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count and (data := connection.recv(count - len(found))):
        found += data
    return bytes(found)


def _send(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(frame)) + frame)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _changed(answer: bytes, api: int, version: int, change: Any) -> bytes:
    kind = ResponseClassRegistry._response_class_registry[api]
    data = io.BytesIO(answer)
    correlation = kind[version].parse_header(data).correlation_id
    found = kind[version].decode(data)
    change(found)
    return _encoded(found, version, correlation)


def _encoded(found: Any, version: int, correlation: int) -> bytes:
    found._header = None
    found.API_VERSION = version
    found.with_header(correlation_id=correlation)
    return bytes(found.encode(header=True))


def _fail(found: Any, code: int) -> None:
    """Put the error wherever there is one."""
    for name in found.fields:
        value = getattr(found, name)
        if name == "error_code":
            found.error_code = code
        for each in value if isinstance(value, list) else ():
            if hasattr(each, "fields"):
                _fail(each, code)


def _forget_ids(found: Any) -> None:
    for topic in found.topics:
        topic.topic_id = type(topic.topic_id)(bytes=_NO_ID) if topic.topic_id else topic.topic_id


def _assign_nothing(found: Any) -> None:
    found.assignment = b""


def _without_producers(request: bytes, version: int) -> bytes:
    """A Produce request whose batches are of no producer."""
    data = io.BytesIO(request)
    header = ProduceRequest[version].parse_header(data)
    head = request[: data.tell()]
    found = ProduceRequest[version].decode(data)
    assert header.request_api_key == PRODUCE
    for topic in found.topic_data:
        for part in topic.partition_data:
            part.records = _of_nobody(bytearray(part.records))
    found._header = None
    found.API_VERSION = version
    return head + bytes(found.encode())


def _of_nobody(batches: bytearray) -> bytes:
    at = 0
    while at + _BATCH.size <= len(batches):
        end = at + _BATCH.size + _BATCH.unpack_from(batches, at)[1]
        first = at + _PRODUCER_AT
        batches[first : first + len(_NO_PRODUCER)] = _NO_PRODUCER
        checksum = crc32c(bytes(batches[at + _CRC_OF : end]))
        struct.pack_into(">I", batches, at + _CRC_AT, checksum)
        at = end
    return bytes(batches)
