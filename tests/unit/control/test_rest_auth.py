"""Basic authentication with a JAAS file, as Connect's own extension does it."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.config.rest import BASIC_AUTH
from sparkmirror.control.rest.basic_auth import LOGIN_MODULE, BasicAuth, jaas_path
from sparkmirror.errors import ConfigError
from tests.unit.control.rest_serving import serving


def _header(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def jaas(tmp_path: Path) -> Path:
    users = tmp_path / "users.properties"
    users.write_text("# people\nadmin=secret\nbob=p:w=\\u00fc\n")
    file = tmp_path / "jaas.conf"
    file.write_text(
        'KafkaClient { some.Module required file="no"; };\n'
        f'// ours {{\nKafkaConnect {{\n  {LOGIN_MODULE} required /* x */\n  file="{users}";\n}};\n'
    )
    return file


def test_who_may_call(jaas: Path) -> None:
    environment = {"KAFKA_OPTS": f"-Xmx1g '-Djava.security.auth.login.config={jaas}'"}
    with serving({"rest.extension.classes": BASIC_AUTH}, environment=environment) as served:
        for header in (
            _header("admin", "secret"),
            _header("bob", "p:w=ü"),
            _header("admin", "secret").replace("Basic", "bASIC"),
        ):
            assert served.call("GET", "/", headers={"Authorization": header}).status == 200
        for wrong in (
            _header("admin", "wrong"),
            _header("nobody", "secret"),
            _header("", ""),
            "Basic " + base64.b64encode(b"admin").decode(),
            "Basic !!!",
            "Bearer secret",
            "",
        ):
            answer = served.call("GET", "/connectors", headers={"Authorization": wrong})
            assert (answer.status, answer.body) == (401, b"User cannot access the resource.")
            assert answer.headers["content-type"] == "application/json"
            assert "www-authenticate" not in answer.headers
        assert served.call("POST", "/connectors", b"{").status == 401
        assert served.call("OPTIONS", "/connectors").headers["content-type"] == "text/plain"
        assert served.call("GET", "/docs").status == 401
        # What is no endpoint needs no user; what workers ask of each other is signed instead.
        assert served.call("GET", "/nope").status == 404
        assert served.call("DELETE", "/connectors").status == 405
        assert served.call("POST", "/connectors/c/tasks", []).status == 400
        assert served.call("PUT", "/connectors/c/fence").status == 400
        assert served.call("GET", "/connectors/c/tasks").status == 401


def test_where_the_file_is(tmp_path: Path) -> None:
    option = "-Djava.security.auth.login.config="
    assert jaas_path({}, {}) is None
    assert jaas_path({"mirror.rest.jaas.file": "/a"}, {"KAFKA_OPTS": f"{option}/b"}) == Path("/a")
    assert jaas_path({}, {"JAVA_TOOL_OPTIONS": f"-Da=b {option}/c"}) == Path("/c")
    assert jaas_path({}, {"KAFKA_OPTS": f'{option}"/d e" -x'}) == Path("/d e")
    assert jaas_path({}, {"KAFKA_OPTS": f"{option}/first {option}/last"}) == Path("/last")


def test_an_empty_file_lets_everybody_in(tmp_path: Path, jaas: Path) -> None:
    (tmp_path / "users.properties").write_text("")
    assert BasicAuth.from_jaas(jaas).admits(None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no section"),
        ("KafkaConnect", "no section"),
        ("KafkaConnect { };", "login module ''"),
        ('KafkaConnect { other.Module required file="/x"; };', "other.Module"),
        (f"KafkaConnect {{ {LOGIN_MODULE} required; }};", "no property file"),
        (f'KafkaConnect {{ {LOGIN_MODULE} required file="/no/such/file"; }};', "/no/such/file"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        BasicAuth.from_jaas(file)


def test_no_file() -> None:
    with (
        pytest.raises(ConfigError, match="no JAAS file"),
        serving({"rest.extension.classes": BASIC_AUTH}),
    ):
        pass
    with pytest.raises(ConfigError, match="cannot be read"):
        BasicAuth.from_jaas(Path("/no/such/file"))


@given(st.text(), st.text(), st.text())
def test_only_the_right_password_admits(user: str, password: str, given_: str) -> None:
    user = user.replace(":", "")
    auth = BasicAuth({user: password, "other": "x"})

    def admits(word: str) -> bool:
        encoded = base64.b64encode(f"{user}:{word}".encode("utf-8", "replace")).decode()
        return auth.admits(f"Basic {encoded}")

    plain = password.encode("utf-8", "replace").decode() == password
    known = user.encode("utf-8", "replace").decode() == user
    if plain and known and user != "other":
        assert admits(password)
        assert admits(given_) == (given_ == password)


def test_nothing_of_a_request_is_looked_at_before_the_login(jaas: Path) -> None:
    environment = {"KAFKA_OPTS": f"-Djava.security.auth.login.config={jaas}"}
    wrong = {"Authorization": _header("admin", "wrong")}
    with serving({"rest.extension.classes": BASIC_AUTH}, environment=environment) as served:
        options = served.call("OPTIONS", "/connectors", headers=wrong)
        assert options.status == 401
        assert "allow" not in options.headers
        for headers in ({"Accept": "text/html"}, {"Content-Type": "text/html"}):
            for login in ({}, wrong):
                answer = served.call("POST", "/connectors", b"{", headers={**headers, **login})
                assert answer.status == 401
