"""One connection to one broker, plain or over TLS, logged in if need be: frames out, frames in, in order.

Two ways to use it, never mixed while something is in flight: `call` sends a request object and waits for its answer;
`submit`, `flush` and `receive` move frames without waiting, for the copy loop, which watches many sockets at once.
Record bytes are neither copied on the way out (`sendmsg` of views) nor on the way in (`recv_into` the frame's own buffer).

A login that ends is renewed on the same connection when nothing is in flight, by `call` and `submit` themselves; who keeps
several requests in flight sends no more while `is_renewal_due`, until the answers are in.
"""

from __future__ import annotations

import contextlib
import errno
import math
import random
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from sparkmirror.errors import AccessFailed, ConfigError, ConnectionFailed, KafkaError
from sparkmirror.kafka import messages
from sparkmirror.kafka.access import refusals, sasl
from sparkmirror.kafka.access.transport import Chunk, Transport, connect
from sparkmirror.kafka.api_versions import APIS, Api, unsupported
from sparkmirror.kafka.inquiry import Where
from sparkmirror.kafka.settings import ClientSettings

_LENGTH = struct.Struct(">i")
LONGEST_FETCH = 512 << 20
"""How many bytes an answer with records in it may have."""
_LONGEST_ANSWER = 64 << 20
_LONGEST_FIRST = 1 << 20  # from what may be no broker: a TLS alert is taken for no frame
_BELIEVED = 16 << 20
"""A longer frame grows as its bytes come: to announce one costs the broker as little as it costs us."""
_AHEAD_BYTES = 8 << 10
_WAKE_BYTES = 64 << 10
_MAX_CHUNKS = 512  # below IOV_MAX (1024)
_WOULD_BLOCK = (errno.EAGAIN, errno.EWOULDBLOCK)
_RENEWED_AFTER = (0.85, 0.95)  # of a session's life, as Java's clients do


class _Expected(NamedTuple):
    """The answer to a request that was submitted."""

    correlation: int
    context: Any
    submitted: float
    longest: int


class Connection:
    """A connection with its own in-flight queue.

    Invariants: answers arrive in the order of the requests, so the left end of `_expected` is always the next one;
    a broken connection is closed at once and never used again.
    """

    def __init__(self, host: str, port: int, settings: ClientSettings) -> None:
        self.host = host
        self.port = port
        self._settings = settings
        self._socket: Transport | None = None
        self._correlation = 0
        self._outgoing: deque[Chunk] = deque()
        self._expected: deque[_Expected] = deque()
        self._ahead = bytearray(_AHEAD_BYTES)
        self._ahead_start = self._ahead_end = 0
        self._wakes_at = 1
        self._wake_bytes = 1
        self._is_let_in = False
        self._renew_at = math.inf
        self._is_proven = False
        self._frame: bytearray | None = None
        self._frame_length = self._filled = 0
        self.versions: dict[int, tuple[int, int]] = {}
        self.muted_until = 0.0
        self.round_trip = 0.0
        """Seconds from request to answer, last time."""
        self.failure: KafkaError = ConnectionFailed(f"{self._where()} is not connected.")
        self.lost_contexts: list[Any] = []
        """After the connection broke: the contexts whose answers will never come."""

    # -- life ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect, learn which versions the broker speaks, and log in. AccessFailed if it does not let us in."""
        try:
            self._connect()
        except ConfigError as error:  # what the settings name is not there, or not yet: files and secrets can be mended
            raise AccessFailed(error.message, error.remedy) from error
        try:
            self.versions = self._learn_versions()
        except ConnectionFailed as error:
            self.close()
            self.failure = refusals.of_opening(self._address(), error)
            raise self.failure from error
        except BaseException:
            self.close()
            raise
        if not self.is_open:  # the broker answered and closed
            raise self.failure
        if self._settings.security.uses_sasl:
            self._log_in()
        self._is_let_in = True

    def _connect(self) -> None:
        self._socket = carrier = connect(self.host, self.port, self._settings)
        # What TLS leaves in the socket is less or more than what is missing: only plain sockets can wait for so many bytes.
        self._wake_bytes = _WAKE_BYTES if isinstance(carrier, socket.socket) else 1
        self._is_let_in = False
        # A listener with logins answers ApiVersions, and to who does not log in nothing more.
        self._is_proven = False

    def _log_in(self) -> None:
        """Log in, for the first time or again; a connection that is refused is closed."""
        self._renew_at = math.inf
        began = time.monotonic()
        try:
            lifetime = sasl.authenticate(self._settings, self.host, self._ask, self.versions)
        except ConfigError as error:
            self.close()
            self.failure = AccessFailed(error.message, error.remedy)
            raise self.failure from error
        except KafkaError as error:
            self.close()
            self.failure = error
            raise
        except BaseException:
            self.close()
            raise
        if not self.is_open:
            raise self.failure
        if lifetime is not None:
            self._renew_at = began + lifetime * random.uniform(*_RENEWED_AFTER)  # noqa: S311 - jitter

    def _renewed(self, context: Any) -> float:
        """Log in again before a request is sent; gives the time after that. If it fails, the request is one that was lost."""
        try:
            self._log_in()
        except KafkaError:
            self.lost_contexts = [context]
            raise
        return time.monotonic()

    def _ask(self, request: Any, version: int) -> Any:
        return self._exchange(request, version, self._settings.request_timeout)

    def close(self) -> None:
        if self._socket is not None:
            self.lost_contexts = [expected.context for expected in self._expected]
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = None
        self._outgoing.clear()
        self._expected.clear()
        self._frame = None
        self._frame_length = self._filled = self._ahead_start = self._ahead_end = 0
        self._wakes_at = 1
        self._renew_at = math.inf

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def fileno(self) -> int:
        return -1 if self._socket is None else self._socket.fileno()

    @property
    def is_renewal_due(self) -> bool:
        """Whether the login has to be renewed before more is sent, which is done when nothing is in flight."""
        return time.monotonic() >= self._renew_at

    def _address(self) -> Where:
        return Where(self.host, self.port, self._settings)

    def _where(self) -> str:
        return str(self._address())

    def _broken(self, cause: str) -> ConnectionFailed:
        self.close()
        self.failure = broken = ConnectionFailed(
            f"The connection to {self._where()} broke: {cause}."
        )
        return broken

    def _learn_versions(self) -> dict[int, tuple[int, int]]:
        for version in (3, 0):  # a broker that does not know v3 says so in a v0 answer
            request = messages.ApiVersionsRequest(
                client_software_name="sparkmirror", client_software_version="0.1.0"
            )
            answer = self._exchange(request, version, self._settings.connect_timeout)
            if answer.error_code == messages.NONE:
                return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        raise messages.broker_error(answer.error_code, f"{self._where()} refused ApiVersions")

    # -- request and answer -------------------------------------------------------------------

    def version_of(self, api: Api, most: int | None = None) -> int:
        """The newest version of an API that both sides speak; BrokerError UNSUPPORTED_VERSION if there is none."""
        version = api.version(self.versions, most)
        if version is None:
            raise unsupported(api, self.versions, self._where())
        return version

    def call(self, request: Any, timeout: float | None = None, most: int | None = None) -> Any:
        """Send a request and wait for its answer; throttle times asked for are waited out."""
        version = self.version_of(APIS[request.API_KEY], most)
        try:
            answer = self._exchange(request, version, timeout or self._settings.request_timeout)
        except ConnectionFailed as error:
            if self._is_proven:
                raise
            self.failure = refusals.of_first_call(self._address(), error)
            raise self.failure from error
        self._is_proven = True
        throttle = getattr(answer, "throttle_time_ms", 0) or 0
        if throttle > 0:
            time.sleep(min(throttle / 1000, self._settings.request_timeout))
        return answer

    def _exchange(self, request: Any, version: int, timeout: float) -> Any:
        correlation = self.next_correlation()
        frame = messages.encode(request, version, correlation, self._settings.client_id)
        payload = self.exchange_frames([frame], correlation, timeout)
        try:
            _, answer = messages.decode(request, payload)
        except ValueError as error:
            raise self._broken(f"its answer to {request.name} cannot be read ({error})") from error
        return answer

    def exchange_frames(
        self,
        chunks: Sequence[Chunk],
        correlation: int,
        timeout: float | None = None,
        longest: int = _LONGEST_ANSWER,
    ) -> memoryview:
        """Send one framed request and wait for its answer's frame."""
        patience = timeout or self._settings.request_timeout
        deadline = time.monotonic() + patience
        self.submit(chunks, correlation, None, longest)
        while True:
            for _, payload in self.receive():
                return payload
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._broken(f"no answer within {patience:.0f} s") from TimeoutError()
            self._wait(left)

    def _wait(self, timeout: float) -> None:
        poll = select.poll()
        events = select.POLLIN | (select.POLLOUT if self._outgoing else 0)
        poll.register(self.fileno(), events)
        poll.poll(max(1, int(timeout * 1000)))
        if self._outgoing:
            self.flush()

    # -- frames -------------------------------------------------------------------------------

    def next_correlation(self) -> int:
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        return self._correlation

    @property
    def in_flight(self) -> int:
        return len(self._expected)

    @property
    def wants_write(self) -> bool:
        return bool(self._outgoing)

    @property
    def oldest_sent(self) -> float | None:
        """When the request that has waited longest was submitted, by the monotonic clock."""
        return self._expected[0].submitted if self._expected else None

    def submit(
        self,
        chunks: Sequence[Chunk],
        correlation: int,
        context: Any,
        longest: int = _LONGEST_ANSWER,
    ) -> None:
        """Queue a framed request; `context` comes back with the answer, which has `longest` bytes at most."""
        if self._socket is None:
            raise self.failure
        now = time.monotonic()
        if now >= self._renew_at and not self._expected:
            now = self._renewed(context)
        if not self._is_let_in:
            longest = _LONGEST_FIRST
        self._expected.append(_Expected(correlation, context, now, longest))
        self._outgoing.extend(chunks)
        self.flush()

    def abandon(self) -> list[Any]:
        """Close, and give back the contexts whose answers will never come."""
        self.close()
        return self.lost_contexts

    def flush(self) -> None:
        """Hand the socket as much of what is queued as it takes."""
        if self._socket is None:
            raise self.failure
        while self._outgoing:
            batch = [self._outgoing[i] for i in range(min(len(self._outgoing), _MAX_CHUNKS))]
            try:
                sent = self._socket.sendmsg(batch)
            except OSError as error:
                if error.errno in _WOULD_BLOCK:
                    return
                raise self._broken(refusals.said(error)) from error
            self._drop_sent(sent)

    def flush_quietly(self) -> None:
        """`flush` for a poller: if the connection breaks, the reader finds it closed and deals with it."""
        with contextlib.suppress(KafkaError):
            self.flush()

    def _drop_sent(self, sent: int) -> None:
        while sent > 0:
            chunk = self._outgoing.popleft()
            if len(chunk) > sent:
                self._outgoing.appendleft(memoryview(chunk)[sent:])
                return
            sent -= len(chunk)

    def receive(self) -> list[tuple[Any, memoryview]]:
        """All frames that are complete by now, each with the context of its request.

        The view starts at the correlation id, and its buffer belongs to the caller alone. If the connection breaks behind
        complete frames, those are given first: the connection is closed by then, and the next call says why.
        """
        done: list[tuple[Any, memoryview]] = []
        try:
            is_empty = False
            while not is_empty:
                is_empty = self._read()
                while self._has_frame():
                    done.append(self._complete())
        except KafkaError:
            if not done:
                raise
        return done

    def _complete(self) -> tuple[Any, memoryview]:
        """The frame that has just been filled, with the context of its request."""
        frame = self._frame
        assert frame is not None  # noqa: S101 - _fill says a frame is complete
        self._frame, self._frame_length, self._filled = None, 0, 0
        expected = self._expected[0]
        (got,) = _LENGTH.unpack_from(frame, 0)
        if got != expected.correlation:
            raise self._broken(f"answer {got} came where {expected.correlation} was expected")
        self._expected.popleft()
        self.round_trip = time.monotonic() - expected.submitted
        return expected.context, memoryview(frame)

    def _has_frame(self) -> bool:
        """Whether a frame is complete; what was read ahead goes into the frame that is to be filled."""
        if self._frame is None:
            ahead = self._ahead_end - self._ahead_start
            if ahead < 4:
                return False
            (length,) = _LENGTH.unpack_from(self._ahead, self._ahead_start)
            if not self._expected:
                raise self._broken("an answer came that nobody asked for")
            if not 4 <= length <= self._expected[0].longest:
                raise self._broken(f"a frame of {length} bytes was announced")
            start = self._ahead_start + 4
            end = min(self._ahead_end, start + length)
            self._frame = frame = bytearray(min(length, _BELIEVED))
            frame[: end - start] = self._ahead[start:end]
            self._frame_length = length
            self._filled = end - start
            self._ahead_start = end
        return self._filled == self._frame_length

    def _read(self) -> bool:
        """Read once, small answers ahead and the rest of a large one in place; True if the socket is empty after that."""
        frame = self._frame
        room = self._room_ahead() if frame is None else self._room_in(frame)
        if self._socket is None:
            raise self.failure
        try:
            got = self._socket.recv_into(room)
        except OSError as error:
            if error.errno not in _WOULD_BLOCK:
                raise self._broken(refusals.said(error)) from error
            got = -1
        if got == 0:
            raise self._broken("the broker closed it")
        if got > 0 and self._frame is None:
            self._ahead_end += got
        elif got > 0:
            self._filled += got
        self._wake_at(1 if self._frame is None else self._frame_length - self._filled)
        return got < len(room)

    def _room_in(self, frame: bytearray) -> memoryview:
        if self._filled == len(frame):
            frame.extend(bytes(min(len(frame), self._frame_length - len(frame))))
        return memoryview(frame)[self._filled :]

    def _room_ahead(self) -> memoryview:
        left = self._ahead_end - self._ahead_start
        self._ahead[:left] = self._ahead[self._ahead_start : self._ahead_end]
        self._ahead_start, self._ahead_end = 0, left
        return memoryview(self._ahead)[left:]

    def _wake_at(self, missing: int) -> None:
        """Be woken for a large answer not by every packet, but when a good part of what is missing has come."""
        wanted = max(1, min(missing, self._wake_bytes))
        if wanted != self._wakes_at and isinstance(self._socket, socket.socket):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            self._wakes_at = wanted
