"""The ASGI application of a listener: requests come in, endpoints are called, answers go out.

Reads that this worker answers from what it knows run in the event loop. Everything else runs in threads, of which there are
only so many: a call that blocks takes one of them and stops nobody else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial

import anyio
import anyio.to_thread
from starlette.datastructures import Headers, QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sparkmirror.config.listeners import HeaderRule
from sparkmirror.control.forwarding import Passed, WorkerAnswer, WorkerClient
from sparkmirror.control.signing import ALGORITHM_HEADER, SIGNATURE_HEADER
from sparkmirror.control.states import Health
from sparkmirror.errors import BadRequest, NotHere, SparkMirrorError

from .answers import JSON, failure, failure_of, refusal
from .basic_auth import BasicAuth
from .cors import Cors
from .headers import apply_rules
from .negotiation import Sent, accepted, allow, preferred, sent
from .origin import Gate
from .root import health_answer
from .routes import Call, Handler, Resource, Route, RouteTable

_LOG = logging.getLogger(__name__)
_THREADS = 64
_HEALTH_THREADS = 4
# A herder gives up by itself and says what it was doing; this is for when it cannot even do that.
_GRACE_S = 2.0


class Application:
    """The endpoints of one listener, with what applies to all of them.

    Invariants:
    - Every request gets an answer within its time-out, also if nobody decides it.
    - Health is asked by threads of its own: it is answered when all others are blocked.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        client: WorkerClient,
        *,
        auth: BasicAuth | None = None,
        cors: Cors | None = None,
        hosts: Collection[str] = (),
        rules: Sequence[HeaderRule] = (),
        request_timeout: float = 90.0,
        health_timeout: float = 10.0,
    ) -> None:
        self._table = RouteTable(routes)
        self._client = client
        self._auth = auth
        self._cors = cors
        self._gate = Gate(cors, hosts)
        self._rules = tuple(rules)
        self._request_timeout = request_timeout
        self._health_timeout = health_timeout
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._health_threads = anyio.CapacityLimiter(_HEALTH_THREADS)
        self._waiting: set[anyio.CancelScope] = set()
        self._is_stopping = False

    def give_up(self) -> None:
        """Answer all that still waits to be decided. To be called in the event loop, when the server stops."""
        self._is_stopping = True
        for waiting in list(self._waiting):
            waiting.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        try:
            response = await self._respond(scope, headers, receive)
        except SparkMirrorError as error:
            response = failure_of(error)
        except ClientDisconnect:
            return
        if self._cors is not None:
            self._cors.apply(scope["method"], headers, response)
        if self._rules:
            response.raw_headers = apply_rules(self._rules, response.raw_headers, time.time())
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, headers: Headers, receive: Receive) -> Response:
        raw_path: str = scope["raw_path"].decode("latin-1")
        method: str = scope["method"]
        stranger = self._gate.refusal(method, headers)
        if stranger is not None:
            return failure(403, stranger)
        found = self._table.find(raw_path)
        if found is None:
            return refusal(404, "Not Found")
        resource, parameters = found
        route = resource.route(method)
        if route is None:
            return self._without_route(resource, method, headers)
        if not route.is_signed and not self._admits(headers):
            return _unauthorized(route.produces)
        refused = _refused(route, headers)
        if refused is not None:
            return refused
        base_url = f"{scope['scheme']}://{_authority(scope, headers)}"
        raw_query: str = scope["query_string"].decode("latin-1")
        call = Call(
            method, raw_path, parameters, QueryParams(raw_query), raw_query, headers, base_url
        )
        if route.is_local(call):
            response = _answered(route.handler, call)
        else:
            body = b"" if call.is_read else await Request(scope, receive).body()
            response = await self._decided(route, replace(call, body=body))
        return _typed(response, headers)

    def _admits(self, headers: Headers) -> bool:
        return self._auth is None or self._auth.admits(headers.get("authorization"))

    def _without_route(self, resource: Resource, method: str, headers: Headers) -> Response:
        if method != "OPTIONS":
            return refusal(405, "Method Not Allowed")
        if not self._admits(headers):
            return _unauthorized("text/plain")
        methods = allow(resource.routes)
        accept = headers.get("accept", "")
        if accepted(accept, "text/plain") is None:
            content_type, body = preferred(accept), ""
        else:
            content_type, body = "text/plain", ", ".join(methods)
        response = Response(body.encode())
        response.raw_headers.append((b"content-type", content_type.encode("latin-1")))
        response.raw_headers.append((b"allow", ",".join(methods).encode()))
        return response

    # -- decisions -----------------------------------------------------------------------------------
    async def _decided(self, route: Route, call: Call) -> Response:
        if route.reads_json and call.body and _sent(route, call.headers) is not Sent.READABLE:
            return failure(415, "HTTP 415 Unsupported Media Type")
        limiter = self._health_threads if route.is_health else self._threads
        timeout = self._health_timeout if route.is_health else self._request_timeout
        with anyio.move_on_after(timeout + _GRACE_S) as waiting:
            self._waiting.add(waiting)
            try:
                return await anyio.to_thread.run_sync(
                    partial(self._decide, route, call), abandon_on_cancel=True, limiter=limiter
                )
            finally:
                self._waiting.discard(waiting)
        return self._undecided(route)

    def _undecided(self, route: Route) -> Response:
        if self._is_stopping:
            return failure(503, "The worker is shutting down.")
        if route.is_health:
            return health_answer(Health("unhealthy", "Worker was unable to handle this request."))
        return failure(500, "Request timed out")

    def _decide(self, route: Route, call: Call) -> Response:
        """In a thread: it may block."""

        def decide(call: Call) -> Response:
            try:
                return route.handler(call)
            except NotHere as error:
                return self._forwarded(route, call, error)

        return _answered(decide, call)

    def _forwarded(self, route: Route, call: Call, error: NotHere) -> Response:
        passed = ["Authorization"]
        if route.is_signed:
            passed += [SIGNATURE_HEADER, ALGORITHM_HEADER]
        request = Passed(
            method=call.method,
            path=call.raw_path,
            query="&".join(_query_without_forward(call)),
            body=call.body,
            headers={name: call.headers[name] for name in passed if name in call.headers},
        )
        return _passed_back(call, self._client.forward(request, error, _forward(call)))


def _answered(handler: Handler, call: Call) -> Response:
    try:
        return handler(call)
    except SparkMirrorError as error:
        return failure_of(error)
    except Exception as error:  # noqa: BLE001 - the client gets an answer whatever happens
        _LOG.error("%s %s failed.", call.method, call.raw_path, exc_info=error)
        return failure(500, f"{type(error).__name__}: {error}")


def _refused(route: Route, headers: Headers) -> Response | None:
    """Media types that an endpoint does not speak."""
    if route.consumes is not None:
        match _sent(route, headers):
            case Sent.OTHER:
                return refusal(415, "Unsupported Media Type")
            case Sent.MALFORMED:
                raise BadRequest(f"Bad Content-Type: {headers['content-type']}")
    if not route.is_signed and _accepted(route.produces, headers) is None:
        return refusal(406, "Not Acceptable")
    return None


def _sent(route: Route, headers: Headers) -> Sent:
    return sent(headers.get("content-type"), route.consumes or JSON)


def _accepted(produced: str, headers: Headers) -> str | None:
    accept = headers.get("accept")
    return produced if accept is None else accepted(accept, produced)


def _typed(response: Response, headers: Headers) -> Response:
    """The answer with the parameters (a charset) that the client asked for."""
    content_type = _accepted(JSON, headers)
    if content_type not in (JSON, None) and response.headers.get("content-type") == JSON:
        response.headers["content-type"] = str(content_type)
    return response


def _unauthorized(content_type: str) -> Response:
    response = Response(b"User cannot access the resource.", 401)
    response.raw_headers.append((b"content-type", content_type.encode()))
    return response


def _authority(scope: Scope, headers: Headers) -> str:
    host = headers.get("host")
    if host:
        return host
    address, port = scope["server"]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _forward(call: Call) -> bool | None:
    value = call.query.get("forward")
    return value.lower() == "true" if value else None


def _query_without_forward(call: Call) -> list[str]:
    return [
        item for item in call.raw_query.split("&") if item and item.partition("=")[0] != "forward"
    ]


def _passed_back(call: Call, answer: WorkerAnswer) -> Response:
    """Another worker's answer as if it were ours: a new connector is found here as well as there."""
    response = Response(answer.body, answer.status, media_type=answer.content_type)
    if answer.location is not None:
        path = "/" + "/".join(answer.location.split("/")[3:])
        response.headers["location"] = call.base_url + path
    return response
