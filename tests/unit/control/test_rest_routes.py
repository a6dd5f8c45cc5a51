"""Paths to endpoints: every name comes out of its encoded form, whatever stands in it."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response

from sparkmirror.control.rest.routes import Call, Route, RouteTable, decoded, segments_of
from sparkmirror.errors import BadRequest

_NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=[*map(chr, range(32)), "\x7f"]),
    min_size=1,
)


def _nothing(call: Call) -> Response:
    return Response()


_TABLE = RouteTable(
    [
        Route("GET", "/", _nothing),
        Route("GET", "/connectors", _nothing),
        Route("GET", "/connectors/{connector}", _nothing),
        Route("DELETE", "/connectors/{connector}", _nothing),
        Route("GET", "/connectors/{connector}/status", _nothing),
        Route("GET", "/connectors/{connector}/tasks/{task}/status", _nothing),
        Route("GET", "/connectors/known/status", _nothing),
    ]
)


@given(_NAMES, _NAMES, st.booleans())
def test_names_are_decoded(name: str, task: str, has_slash: bool) -> None:
    path = f"/connectors/{quote(name, safe='')}/tasks/{quote(task, safe='')}/status"
    found = _TABLE.find(path + "/" * has_slash)
    assert found is not None
    resource, parameters = found
    assert parameters == {"connector": name, "task": task}
    assert set(resource.routes) == {"GET"}


@given(_NAMES)
def test_encoding_may_be_partial(name: str) -> None:
    """Clients encode more or less; what may stand in a path as it is means itself."""
    assert decoded(quote(name, safe="")) == name
    assert decoded(quote(name, safe="!$&'()*+,=:@~")) == name


@given(st.text(st.characters(codec="ascii", exclude_characters=";?#")))
def test_every_path_is_found_missing_or_refused(path: str) -> None:
    try:
        found = _TABLE.find("/" + path)
    except BadRequest:
        return
    if found is not None:
        assert len(segments_of("/" + path)) == len(found[0].pattern)


def test_methods_and_fixed_parts() -> None:
    found = _TABLE.find("/connectors/x")
    assert found is not None
    assert set(found[0].routes) == {"GET", "DELETE"}
    head = found[0].route("HEAD")
    assert head is not None
    assert head.method == "GET"
    assert found[0].route("PUT") is None
    fixed = _TABLE.find("/connectors/known/status")
    assert fixed is not None
    assert fixed[1] == {}
    root = _TABLE.find("/")
    assert root is not None
    assert _TABLE.find("/nope") is None


@pytest.mark.parametrize("text", ["%", "%4", "%zz", "a%", "%ff", "%C3", "%00", "%0A", "%7f"])
def test_bad_encodings(text: str) -> None:
    with pytest.raises(BadRequest):
        decoded(text)


@pytest.mark.parametrize("path", ["//", "//a", "/a//b", "/a//", "/;x/b"])
def test_empty_parts(path: str) -> None:
    with pytest.raises(BadRequest):
        segments_of(path)
