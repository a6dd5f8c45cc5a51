"""What configs of connectors may name: what is built in, and what the owner of the worker lists or names himself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparkmirror.config.connect_validation import validate
from sparkmirror.config.permits import KNOWN_HANDLERS, Permits
from sparkmirror.errors import ConfigError, QueryRefused
from sparkmirror.kafka.access import oauth
from tests.unit.config.test_connect_validation import LEAST, errors, worker

POLICY = "replication.policy.class"
FUNCTIONS = "transform.functions"
SQL = {"transform.sql": "SELECT f(value) AS value FROM records"}
HANDLER = "source.cluster.sasl.login.callback.handler.class"
URL = "target.cluster.sasl.oauthbearer.token.endpoint.url"
NONE = Permits.parse({}, {})


def refused(permits: Permits, **props: str) -> list[str]:
    return [problem.key for problem in permits.problems(dotted(props))]


def dotted(props: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in props.items()}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (POLICY, "os.PathLike"),
        (FUNCTIONS, "pip:main"),
        (FUNCTIONS, "sparkmirror.tools.pack:main"),
        (HANDLER, "subprocess.Popen"),
        ("producer.override.sasl.client.callback.handler.class", "my.Handler"),
        ("transform.sql.file", "/etc/passwd"),
        (URL, "https://elsewhere.example/token"),
        (URL, "file:/etc/passwd"),
        ("source.consumer.sasl.oauthbearer.jwks.endpoint.url", "http://169.254.169.254/"),
    ],
)
def test_nothing_is_allowed_that_is_not_listed(key: str, value: str) -> None:
    (problem,) = NONE.problems({key: value})
    assert problem.key == key
    assert value in problem.message
    assert "worker's file" in problem.message
    with pytest.raises(ConfigError, match="may not name"):
        NONE.require({key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (POLICY, "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"),
        (POLICY, "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy"),
        (HANDLER, "software.amazon.msk.auth.iam.IAMClientCallbackHandler"),
        (HANDLER, "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"),
        (POLICY, ""),
        (FUNCTIONS, ""),
        ("source.cluster.ssl.truststore.location", "/etc/kafka/truststore.jks"),
    ],
)
def test_what_is_built_in_needs_no_list(key: str, value: str) -> None:
    assert list(NONE.problems({key: value})) == []


def test_handlers_that_are_built_in_are_known_here() -> None:
    assert set(oauth._JAVA_HANDLERS) <= KNOWN_HANDLERS


def test_lists_hold_packages_and_what_is_below_them() -> None:
    permits = Permits.parse(
        {
            "transform.functions.allowed": "acme.masks, other:only",
            "plugin.modules.allowed": "acme",
            "org.apache.kafka.sasl.oauthbearer.allowed.urls": "https://idp.example/token",
        },
        {"KAFKA_OPTS": "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://b/t,file:///t"},
    )
    for name in ("acme.masks:hash", "acme.masks.more:hash", "other:only"):
        permits.require_function(name)
    for name in ("acme:hash", "acme.masksx:hash", "other:else", "other.deep:only"):
        with pytest.raises(QueryRefused):
            permits.require_function(name)
    assert refused(permits, replication__policy__class="acme.policies.Mine") == []
    assert refused(permits, replication__policy__class="acmex.Mine") == [POLICY]
    assert list(permits.problems({URL: "https://b/t"})) == []
    assert list(permits.problems({URL: "https://idp.example/token"})) == []
    assert list(permits.problems({URL: "https://idp.example/token/"})) != []


def test_files_are_compared_where_links_lead(tmp_path: Path) -> None:
    root, outside = tmp_path / "queries", tmp_path / "outside.sql"
    root.mkdir()
    outside.write_text("SELECT 1")
    (root / "link.sql").symlink_to(outside)
    (root / "own.sql").write_text("SELECT 1")
    permits = Permits.parse({"transform.sql.file.allowed.paths": str(root)}, {})
    assert refused(permits, transform__sql__file=str(root / "own.sql")) == []
    for file in (root / "link.sql", root / ".." / "outside.sql", outside):
        assert refused(permits, transform__sql__file=str(file)) == ["transform.sql.file"]


def test_what_files_of_the_owner_name_is_trusted_and_nothing_near_it() -> None:
    permits = NONE.trusting([{FUNCTIONS: "acme.masks:hash, b:c", POLICY: "acme.Mine", URL: "u"}])
    permits.require_function("acme.masks:hash")
    permits.require_function("b:c")
    with pytest.raises(QueryRefused):
        permits.require_function("acme.masks:other")
    assert list(permits.problems({POLICY: "acme.Mine", URL: "u"})) == []
    assert list(permits.problems({POLICY: "acme.Other"})) != []


def test_nothing_is_imported_before_it_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_unlisted_policy.py").write_text("raise RuntimeError('it was imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    said = errors(validate(LEAST | {POLICY: "acme_unlisted_policy.Mine"}, worker()))
    assert list(said) == [POLICY]
    assert "plugin.modules.allowed" in said[POLICY][0]
    assert "acme_unlisted_policy" not in sys.modules
    with pytest.raises(RuntimeError, match="it was imported"):
        validate(
            LEAST | {POLICY: "acme_unlisted_policy.Mine"},
            worker(plugin__modules__allowed="acme_unlisted_policy"),
        )


def test_nothing_is_read_before_it_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hush")
    for name in (file, tmp_path / "is-not-there"):
        (said,) = errors(validate(LEAST | {"transform.sql.file": str(name)}, worker())).values()
        assert said == [
            f"transform.sql.file names {name}, which configs of connectors may not name here. Who owns the worker may list the "
            "directory in transform.sql.file.allowed.paths of the worker's file."
        ], "it does not tell whether the file is there"


def test_a_path_that_is_none_is_not_allowed(tmp_path: Path) -> None:
    permits = Permits.parse({"transform.sql.file.allowed.paths": str(tmp_path)}, {})
    with pytest.raises(ConfigError, match="may not name here"):
        permits.require({"transform.sql.file": f"{tmp_path}/a\0b"})
