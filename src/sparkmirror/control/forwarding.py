"""What one worker asks of another over HTTP: a request comes in, the other worker's answer goes out.

A request that another worker has to decide is passed on at most twice: the first hop says `forward=true` (pass it on once
more if need be), the second `forward=false`.
"""

from __future__ import annotations

import http.client
import json
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from sparkmirror.errors import (
    BadRequest,
    Conflict,
    ConnectError,
    Forbidden,
    NotFound,
    NotHere,
    Unavailable,
)

from .herding import Signature
from .signing import ALGORITHM_HEADER, SIGNATURE_HEADER

_LOG = logging.getLogger(__name__)

USER_AGENT = "kafka-connect"
_JSON = "application/json"
_NO_LEADER = (
    "Cannot complete request momentarily due to no known leader URL, "
    "likely because a rebalance was underway."
)
_LONGEST_ANSWER = 64 << 20
_TOO_FAR = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
_ERRORS: dict[int, type[ConnectError]] = {
    error.status: error for error in (BadRequest, Forbidden, NotFound, Conflict, Unavailable)
}


@dataclass(frozen=True, slots=True)
class Passed:
    """A request as it is passed on. `path` is encoded and starts with a slash; `query` is encoded, without `forward`."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    status: int
    content_type: str | None
    location: str | None
    body: bytes


class WorkerClient:
    """Calls other workers. Stateless: every request has a connection of its own, so any thread may call."""

    def __init__(self, tls: ssl.SSLContext | None = None, timeout: float = 90.0) -> None:
        self._tls = tls
        self._timeout = timeout

    def forward(self, request: Passed, error: NotHere, forward: bool | None) -> WorkerAnswer:
        """Pass on a request that raised `error`; `forward` is what the request itself said, None if nothing."""
        if forward is False:
            _LOG.warning("Not passing on %s %s a third time.", request.method, request.path)
            raise Conflict(_TOO_FAR) from error
        if error.url is None:
            raise Conflict(_NO_LEADER) from error
        hop = f"forward={'true' if forward is None else 'false'}"
        query = f"{request.query}&{hop}" if request.query else hop
        _LOG.debug("Passing on %s %s to %s (%s).", request.method, request.path, error.url, hop)
        answer = self.send(error.url, request, query)
        if not (200 <= answer.status < 300 or answer.status >= 400):
            raise ConnectError(
                f"Unexpected status code when handling forwarded request: {answer.status}"
            )
        return answer

    def post_task_configs(
        self,
        url: str,
        connector: str,
        configs: Sequence[Mapping[str, str]],
        sign: Callable[[bytes], Signature],
    ) -> None:
        """Tell the leader at `url` the tasks of a connector; raises what the leader answers with."""
        body = json.dumps(list(map(dict, configs)), ensure_ascii=False, separators=(",", ":"))
        self._send_signed(
            url, "POST", f"/connectors/{_segment(connector)}/tasks", sign(body.encode())
        )

    def put_fence(self, url: str, connector: str, sign: Callable[[bytes], Signature]) -> None:
        """Ask the leader at `url` to fence zombie tasks of a connector."""
        self._send_signed(url, "PUT", f"/connectors/{_segment(connector)}/fence", sign(b""))

    def _send_signed(self, url: str, method: str, path: str, signature: Signature) -> None:
        headers = {
            SIGNATURE_HEADER: signature.signature or "",
            ALGORITHM_HEADER: signature.algorithm or "",
        }
        answer = self.send(url, Passed(method, path, body=signature.body, headers=headers))
        if not 200 <= answer.status < 300:
            raise _error(answer)

    def send(self, url: str, request: Passed, query: str = "") -> WorkerAnswer:
        """One request to the worker at `url`. Redirects are not followed."""
        base = urlsplit(url)
        target = base.path.rstrip("/") + request.path + (f"?{query}" if query else "")
        headers = {"User-Agent": USER_AGENT, "Accept": _JSON, **(request.headers or {})}
        if request.body:
            headers["Content-Type"] = _JSON
        try:
            connection = self._connection(base.scheme, base.hostname or "", base.port)
            try:
                connection.request(request.method, target, request.body or None, headers)
                answer = connection.getresponse()
                read = answer.read(_LONGEST_ANSWER + 1)
                if len(read) > _LONGEST_ANSWER:
                    raise http.client.HTTPException(
                        f"the answer has more than {_LONGEST_ANSWER:,} bytes"
                    )
                return WorkerAnswer(
                    answer.status,
                    answer.getheader("Content-Type"),
                    answer.getheader("Location"),
                    read,
                )
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: of the URL
            raise ConnectError(
                f"IO Error trying to forward REST request: {url}: {error!r}"
            ) from error

    def _connection(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        if scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)


def _segment(name: str) -> str:
    return quote(name, safe="")


def _error(answer: WorkerAnswer) -> ConnectError:
    message = answer.body.decode("utf-8", errors="replace")
    try:
        document = json.loads(message)
    except ValueError:
        document = None
    if isinstance(document, dict) and isinstance(document.get("message"), str):
        message = document["message"]
    return _ERRORS.get(answer.status, ConnectError)(message or f"HTTP {answer.status}")
