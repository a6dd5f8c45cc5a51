"""The same configs validated by a Connect worker and by us: keys, order, types, values and errors are the same."""

from __future__ import annotations

import html
import json
import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from java_connect import JavaConnectWorker
from validation_answers import DEFAULTS, same_definition, same_entry
from validation_cases import BYTES, CHECKPOINT, OURS, SAME, SOURCE, Case

from sparkmirror.config.config_values import to_text
from sparkmirror.config.connect_validation import require_plugin, require_valid, validate
from sparkmirror.config.keys import Key, convert
from sparkmirror.config.keys_clients import ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS
from sparkmirror.config.keys_rest import REST_KEYS
from sparkmirror.config.keys_worker import DISTRIBUTED_KEYS, RESTART_KEYS
from sparkmirror.config.overrides import ALLOWLIST_KEY
from sparkmirror.config.permits import MODULES_ALLOWED, PERMIT_KEYS, URLS_ALLOWED
from sparkmirror.config.plugins import (
    STRUCTURED_TRANSFORMATIONS,
    list_plugins,
    plugin_definitions,
)
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.errors import ConnectError
from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.tools.jvm import run_tool

_POLICY = "connector.client.config.override.policy"
_PROVIDER = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
_ALLOWED = {MODULES_ALLOWED: "java.lang", URLS_ALLOWED: "1"}
"""What configs of connectors may name; a Java worker asks nobody."""
_WORKERS: dict[str, dict[str, str]] = {
    "all": {},
    "principal": {_POLICY: "Principal", "exactly.once.source.support": "enabled"},
    "allowlist": {_POLICY: "Allowlist", ALLOWLIST_KEY: "acks,linger.ms"},
}


class Pair(NamedTuple):
    """A Connect worker, and our settings of a worker with the same properties."""

    java: JavaConnectWorker
    ours: WorkerConfig


@pytest.fixture(scope="module")
def pairs(
    peer_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Pair]]:
    directory = tmp_path_factory.mktemp("validation")
    with ExitStack() as stack:
        found = {}
        for name, extra in _WORKERS.items():
            group = f"{name}-{uuid.uuid4().hex[:8]}"
            settings = {"config.providers": "env", "config.providers.env.class": _PROVIDER, **extra}
            java = JavaConnectWorker(peer_cluster.bootstrap, directory, group, **settings)
            stack.enter_context(java)
            least = {
                "bootstrap.servers": peer_cluster.bootstrap,
                "group.id": group,
                "key.converter": BYTES,
                "value.converter": BYTES,
                **{f"{part}.storage.topic": part for part in ("config", "offset", "status")},
            }
            found[name] = Pair(java, WorkerConfig.parse(least | settings | _ALLOWED))
        yield found


@pytest.fixture
def pair(pairs: dict[str, Pair]) -> Pair:
    return pairs["all"]


def _answers(case: Case, pairs: dict[str, Pair]) -> tuple[dict[str, Any], dict[str, Any]]:
    pair = pairs[case.worker]
    path = f"/connector-plugins/{case.connector}/config/validate"
    java = pair.java.request("PUT", path, case.config())
    assert java.status == 200, java.body
    # Through JSON, as a client sees it.
    ours = json.loads(json.dumps(validate(case.config(), pair.ours)))
    for answer in (java.body, ours):
        answer["configs"] = [same_entry(entry) for entry in answer["configs"]]
    return java.body, ours


@pytest.mark.parametrize("case", SAME, ids=lambda case: case.name)
def test_both_say_the_same(case: Case, pairs: dict[str, Pair]) -> None:
    java, ours = _answers(case, pairs)
    for theirs, own in zip(java["configs"], ours["configs"], strict=True):
        assert list(own["value"]) == list(theirs["value"])
        assert json.dumps(own) == json.dumps(theirs), "also the order of fields"
    assert json.dumps(ours) == json.dumps(java)


@pytest.mark.parametrize("case", OURS, ids=lambda case: case.name)
def test_we_differ_where_we_mean_to(case: Case, pairs: dict[str, Pair]) -> None:
    java, ours = _answers(case, pairs)
    by_name = [{entry["value"]["name"]: entry for entry in a["configs"]} for a in (java, ours)]
    assert [*by_name[0]] == [*by_name[1]]
    differing = {name for name in by_name[0] if by_name[0][name] != by_name[1][name]}
    assert differing == case.differs
    for name in differing:
        assert by_name[0][name]["definition"] == by_name[1][name]["definition"]
    for answer in (java, ours):
        for entry in answer["configs"]:
            if entry["value"]["name"] in differing:
                answer["error_count"] -= len(entry["value"]["errors"])
    assert (ours["error_count"], ours["groups"]) == (java["error_count"], java["groups"])


def test_a_step_that_needs_fields_is_refused(pairs: dict[str, Pair]) -> None:
    step = "org.apache.kafka.connect.transforms.Cast$Value"
    props = {"transforms": "c", "transforms.c.type": step, "transforms.c.spec": "int32"}
    java, ours = _answers(Case("cast", {**props}), pairs)
    assert (java["error_count"], ours["error_count"]) == (0, 1)
    (refused,) = [e["value"] for e in ours["configs"] if e["value"]["errors"]]
    assert (refused["name"], refused["value"]) == ("transforms.c.type", step)
    assert "needs records with fields" in refused["errors"][0]


@pytest.mark.parametrize(
    "config",
    [
        {"connector.class": "MirrorSource", "tasks.max": "0"},
        {"connector.class": SOURCE, "tasks.max": "x", "foo": None, "topics": None},
        {
            "connector.class": CHECKPOINT,
            "groups": "a,,b",
            "source.cluster.alias": "A",
            "producer.override.acks": "1",
        },
        {"name": "n"},
        {"connector.class": None, "ssl.key.password": "s3cret"},
    ],
)
def test_a_config_is_refused_with_the_same_words(config: dict[str, Any], pair: Pair) -> None:
    name = f"refused-{uuid.uuid4().hex[:8]}"
    config = {**config, "name": name}
    java = pair.java.request("POST", "/connectors", {"name": name, "config": config})
    with pytest.raises(ConnectError) as refused:
        require_valid(config, pair.ours)
    said = java.body["message"].replace("s3cret", "[hidden]")
    # Where a message shows the whole config, it does so in the order of a Java map.
    assert sorted(re.split("[{,}] ?", refused.value.message)) == sorted(re.split("[{,}] ?", said))
    assert refused.value.status == java.status == 400


@pytest.mark.parametrize(
    ("plugin", "config"),
    [
        (SOURCE, {"connector.class": "com.acme.MirrorSourceConnector"}),
        (SOURCE, {"name": "x"}),
        (SOURCE, {"connector.class": None}),
        (SOURCE, {"connector.class": CHECKPOINT}),
        (SOURCE, {"connector.class": SOURCE, "connector.plugin.version": "["}),
        ("RegexRouter", {"connector.class": "org.apache.kafka.connect.transforms.RegexRouter"}),
    ],
)
def test_requests_that_cannot_be_answered_have_the_same_status(
    plugin: str, config: dict[str, str | None], pair: Pair
) -> None:
    java = pair.java.request("PUT", f"/connector-plugins/{plugin}/config/validate", config)
    with pytest.raises(ConnectError) as refused:
        require_plugin(plugin, config)
        validate(config, pair.ours)
    assert refused.value.status == java.status
    assert refused.value.message.partition(", available")[0] in java.body["message"]


def test_plugins_are_listed_alike(pair: Pair) -> None:
    java = pair.java.request("GET", "/connector-plugins?connectorsOnly=false").body
    ours = list_plugins(connectors_only=False)
    assert [p for p in java if p["class"] not in STRUCTURED_TRANSFORMATIONS] == ours
    assert pair.java.request("GET", "/connector-plugins").body == list_plugins()


def test_plugins_have_the_same_keys(pair: Pair) -> None:
    for plugin in {entry["class"] for entry in list_plugins(connectors_only=False)}:
        java = pair.java.request("GET", f"/connector-plugins/{plugin}/config").body
        ours = plugin_definitions(plugin)
        assert [same_definition(key) for key in ours] == [same_definition(key) for key in java], (
            plugin
        )


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("MirrorSource", None),
        ("Json", "4.3.1"),
        (SOURCE, "latest"),
        (SOURCE, "[4.0,)"),
        (SOURCE, "(,4.3.1)"),
        (SOURCE, "(,4.3.1]"),
        (SOURCE, "[4.3.1-SNAPSHOT,)"),
        (SOURCE, "[1,2],[3,4]"),
        (SOURCE, "4.3"),
        (SOURCE, ""),
        (SOURCE, "["),
        (SOURCE, "1]"),
        (SOURCE, "[2,1]"),
        ("RegexRouter", "1"),
        ("Nope", "1"),
        ("mirrorsource", None),
        ("Value", None),
    ],
)
def test_plugins_are_found_by_name_and_version(name: str, version: str | None, pair: Pair) -> None:
    query = "" if version is None else f"?version={quote(version)}"
    java = pair.java.request("GET", f"/connector-plugins/{name}/config{query}")
    try:
        assert (200, len(plugin_definitions(name, version))) == (java.status, len(java.body))
    except ConnectError as error:
        assert (error.status, error.message) == (java.status, java.body["message"])


@pytest.mark.parametrize(
    ("kind", "keys"),
    [("producer", PRODUCER_KEYS), ("consumer", CONSUMER_KEYS), ("admin", ADMIN_KEYS)],
)
def test_clients_have_the_same_keys(
    kind: str, keys: tuple[Key, ...], pairs: dict[str, Pair]
) -> None:
    samples = {"BOOLEAN": "true", "CLASS": "java.lang.String"}
    overrides = {f"{kind}.override.{k.name}": samples.get(k.type, "1") for k in keys}
    java, ours = _answers(Case("", {**overrides, "offsets.storage.topic": "t"}), pairs)
    assert json.dumps(ours) == json.dumps(java)


def test_workers_have_the_same_keys() -> None:
    page = run_tool("org.apache.kafka.connect.runtime.distributed.DistributedConfig")
    java = {
        html.unescape(name): dict(re.findall(r"<tr><th>(.*?):</th><td>(.*?)</td></tr>", rows))
        for name, rows in re.findall(
            r"<h4><a [^>]*></a><a [^>]*>([^<]*)</a></h4>(.*?)(?=<h4>|\Z)", page, re.DOTALL
        )
    }
    own = {key.name for key in (*RESTART_KEYS, *PERMIT_KEYS)} | {ALLOWLIST_KEY}
    own |= {key.name for key in REST_KEYS if key.doc.startswith("Ours.")}
    assert {key.name for key in DISTRIBUTED_KEYS} - own == java.keys()
    for key in DISTRIBUTED_KEYS:
        if key.name not in own:
            assert _worker_key(key) == _documented(java[key.name]), key.name


def _worker_key(key: Key) -> tuple[str, str, str]:
    default = "" if key.required else "null"
    if key.default is not None:
        given, _ = DEFAULTS.get(key.name, (key.default, ""))
        default = to_text(convert(key.type, given), key.type) or '""'
    return key.type.lower(), default, key.importance.lower()


def _documented(rows: dict[str, str]) -> tuple[str, str, str]:
    default = html.unescape(rows["Default"])
    # Numbers are followed by what they amount to: 5000 (5 seconds).
    return rows["Type"], re.sub(r"^(\d+) \(.*\)$", r"\1", default), rows["Importance"]
