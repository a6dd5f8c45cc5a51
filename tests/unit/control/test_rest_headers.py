"""Headers on every answer: those of rules, and those for browsers (CORS)."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.config.listeners import HeaderRule
from sparkmirror.control.rest.cors import Cors
from sparkmirror.control.rest.headers import apply_rules, check_rules
from sparkmirror.errors import ConfigError
from tests.unit.control.rest_serving import serving

_TOKENS = st.text("abcdefghij-XYZ", min_size=1)
_RULES = st.lists(
    st.one_of(
        st.builds(
            HeaderRule, st.sampled_from(["set", "add"]), _TOKENS, st.text("ab c,;=", max_size=5)
        ),
        st.builds(
            HeaderRule,
            st.sampled_from(["setDate", "addDate"]),
            _TOKENS,
            st.integers(-(10**12), 10**12).map(str),
        ),
    )
)
_OWN = st.lists(st.tuples(_TOKENS.map(lambda name: name.lower().encode()), st.just(b"own")))


@given(_RULES, _OWN)
def test_rules_never_touch_what_the_answer_says(
    rules: list[HeaderRule], own: list[tuple[bytes, bytes]]
) -> None:
    check_rules(rules)
    applied = apply_rules(rules, own, 1_700_000_000.0)
    assert applied[: len(own)] == own
    taken = {name for name, _ in own}
    added = applied[len(own) :]
    assert not taken & {name for name, _ in added}
    for name in {rule.name.lower() for rule in rules} - {each.decode() for each in taken}:
        mine = [rule for rule in rules if rule.name.lower() == name]
        replacing = [i for i, rule in enumerate(mine) if rule.action in ("set", "setDate")]
        expected = mine[replacing[-1] :] if replacing else mine
        assert len([1 for each, _ in added if each == name.encode()]) == len(expected)


def test_rules_over_http() -> None:
    rules = (
        'add X-A: 1, set X-B: b, "set Cache-Control: no-cache, no-store", setDate Expires: 3600000, '
        "set Content-Type: text/foo, add X-A: 2, set X-B: c"
    )
    with serving(
        {"response.http.headers.config": rules, "admin.listeners": "http://127.0.0.1:0"}
    ) as served:
        for path in ("/connectors", "/connectors/x", "/nope"):
            headers = served.call("GET", path).headers
            assert headers["x-b"] == "c"
            assert headers["cache-control"] == "no-cache, no-store"
            ahead = parsedate_to_datetime(headers["expires"]) - datetime.now(UTC)
            assert abs(ahead.total_seconds() - 3600) < 60
        assert served.call("GET", "/connectors").headers["content-type"] == "application/json"
        assert served.call("GET", "/nope").headers["content-type"] == "text/foo"


@pytest.mark.parametrize(
    "rule",
    [
        HeaderRule("set", "bad name", "x"),
        HeaderRule("set", "", "x"),
        HeaderRule("set", "X", "a\nb"),
        HeaderRule("add", "X", "€"),
        HeaderRule("setDate", "X", "tomorrow"),
        HeaderRule("addDate", "X", "9" * 13),
    ],
)
def test_rules_that_make_no_header(rule: HeaderRule) -> None:
    with pytest.raises(ConfigError, match=r"response\.http\.headers\.config"):
        check_rules([rule])


def test_no_word_about_origins_by_default() -> None:
    with serving() as served:
        answer = served.call("GET", "/connectors", headers={"Origin": "http://good.example"})
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "vary" not in answer.headers


def test_origins() -> None:
    properties = {
        "access.control.allow.origin": r"http://good\.example, http://.*\.wild\.example",
        "access.control.allow.methods": "GET, PUT",
    }
    with serving(properties) as served:

        def allowed(origin: str) -> str | None:
            answer = served.call("GET", "/connectors/x", headers={"Origin": origin})
            found = answer.headers.get("access-control-allow-origin")
            assert answer.status == (403 if found is None else 404)
            assert answer.headers["vary"] == "Origin"
            return found

        for good in ("http://good.example", "HTTP://GOOD.EXAMPLE", "http://a.wild.example"):
            assert allowed(good) == good
        for bad in ("http://bad.example", "http://good.example:80", "http://goodxexample", "null"):
            assert allowed(bad) is None
        assert served.call("GET", "/").headers["vary"] == "Origin"
        asked = {"Origin": "http://good.example", "Access-Control-Request-Method": "DELETE"}
        preflight = served.call("OPTIONS", "/connectors", headers=asked)
        assert preflight.status == 200
        assert preflight.headers["access-control-allow-methods"] == "GET,PUT"
        assert preflight.headers["access-control-allow-headers"] == "Content-Type"
        assert preflight.headers["access-control-max-age"] == "60"
        assert preflight.headers["allow"] == "HEAD,POST,GET,OPTIONS"
        plain = served.call("OPTIONS", "/connectors", headers={"Origin": "http://good.example"})
        assert "access-control-allow-methods" not in plain.headers


def test_every_origin() -> None:
    with serving({"access.control.allow.origin": "*"}) as served:
        headers = {"Origin": "http://x", "Access-Control-Request-Method": "PUT"}
        answer = served.call("OPTIONS", "/connectors", headers=headers)
        assert answer.headers["access-control-allow-origin"] == "http://x"
        assert answer.headers["access-control-allow-methods"] == "GET,POST,HEAD"


def test_an_origin_that_is_no_expression() -> None:
    with pytest.raises(ConfigError, match=r"access\.control\.allow\.origin"):
        Cors.from_settings("http://(", "")
