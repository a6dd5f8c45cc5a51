"""Pages from elsewhere cannot have somebody's browser change anything; programs are not asked where they come from."""

from __future__ import annotations

import time

import pytest

from tests.unit.control.rest_serving import LOCAL, Client, Served, serving

METHODS = ["PUT", "POST", "PATCH", "DELETE"]


def status(served: Served, method: str, **headers: str) -> int:
    """Of a call that changes something, or would if it came through."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    is_bare = method in ("GET", "DELETE")
    path = "/connectors/c/config"
    return served.call(method, path, None if is_bare else {}, headers=named).status


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://evil.example", "Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"},
    ],
)
def test_pages_from_elsewhere_change_nothing(method: str, headers: dict[str, str]) -> None:
    with serving() as served:
        assert status(served, method, **headers) == 403
        assert served.herder.calls == []


def test_the_refusal_names_the_key() -> None:
    with serving() as served:
        answer = served.call("PUT", "/connectors/c/config", {}, headers={"Origin": "http://evil"})
        assert "http://evil" in answer.message
        assert "access.control.allow.origin" in answer.message


def test_programs_and_our_own_pages_pass() -> None:
    with serving() as served:
        own = f"http://127.0.0.1:{served.call.port}"
        assert status(served, "PUT") == 201
        assert status(served, "PUT", Origin=own) == 200
        assert status(served, "PUT", Origin=own, Sec_Fetch_Site="same-origin") == 200
        assert status(served, "GET", Sec_Fetch_Site="none") == 200
        # Through a proxy that takes another name.
        public = {"Origin": "https://mirror.example", "X_Forwarded_Host": "mirror.example"}
        assert status(served, "PUT", **public) == 200


def test_reading_across_sites_is_for_links_only() -> None:
    with serving() as served:
        assert status(served, "PUT") == 201
        link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
        assert status(served, "GET", **link) == 200
        assert status(served, "GET", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors") == 403
        assert status(served, "GET", Origin="http://evil.example") == 403


def test_origins_that_are_allowed() -> None:
    with serving({"access.control.allow.origin": r"http://(good|fine)\.example"}) as served:
        assert status(served, "PUT", Origin="http://good.example") == 201
        assert status(served, "PUT", Origin="http://evil.example") == 403
    with serving({"access.control.allow.origin": "*"}) as served:
        assert status(served, "PUT", Origin="http://evil.example") == 201


def test_names_of_the_server() -> None:
    with serving({"rest.allowed.hosts": "mirror.example, 127.0.0.1:1"}) as served:
        assert status(served, "PUT", Host="Mirror.example") == 201
        assert status(served, "PUT", Host="mirror.example:8083") == 200
        assert status(served, "PUT", Host="127.0.0.1:1") == 200
        assert status(served, "PUT", Host="127.0.0.1:2") == 403
        assert status(served, "GET", Host="rebound.example") == 403
    with serving() as served:
        assert status(served, "PUT", Host="rebound.example") == 201


def test_the_listeners_for_loggers_are_no_way_round() -> None:
    with serving({"admin.listeners": "http://127.0.0.1:0"}) as served:
        call = type(served.call)(served.server.ports[-1])
        foreign = {"Origin": "http://evil.example"}
        assert call("PUT", "/admin/loggers/root", {"level": "DEBUG"}, foreign).status == 403
        assert call("GET", "/admin/loggers").status == 200


def test_a_long_origin_is_not_held_against_patterns() -> None:
    """They are Python's: one that backtracks would stop the server."""
    with serving({"access.control.allow.origin": "(a|aa)+x"}) as served:
        begin = time.monotonic()
        assert status(served, "PUT", Origin="http://" + "a" * 10_000) == 403
        assert time.monotonic() - begin < 5


def test_names_of_the_server_count_for_the_listeners_for_loggers_too() -> None:
    keys = {"admin.listeners": LOCAL, "rest.allowed.hosts": "mirror.example"}
    with serving(keys) as served:
        admin = Client(served.server.ports[-1])
        assert admin("GET", "/admin/loggers", headers={"Host": "rebound.example"}).status == 403
        assert admin("GET", "/admin/loggers", headers={"Host": "mirror.example"}).status == 200
