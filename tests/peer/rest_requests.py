"""The requests that a Java worker and ours answer side by side, as data: good, bad and odd, in the order in which they are sent.

In paths and bodies `@RUN@` stands for the worker that is asked, so that both can work on one cluster, and `@KAFKA@` for
the address of that cluster.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

BEAT = "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector"
SOURCE = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
CHECKPOINT = "org.apache.kafka.connect.mirror.MirrorCheckpointConnector"


class Ask(NamedTuple):
    """One request. `body` is sent as JSON unless it is bytes; `headers` win over what follows from the body."""

    name: str
    method: str
    path: str
    body: object = None
    headers: Mapping[str, str | None] = {}
    until: str = ""
    """Ask again until the answer says all of this (parts between `&&`), anywhere in it: what threads bring about takes time."""
    until_not: str = ""
    """Ask again until the answer does not say this any more."""
    is_final: bool = False
    """Never ask again, even if the answer says that it is for the moment only."""


class Await(NamedTuple):
    """Wait until a connector, and that many tasks of it, are in a state."""

    connector: str
    state: str
    tasks: int = 0


Step = Ask | Await


def _asks(section: str, *asks: tuple[Any, ...]) -> Iterator[Ask]:
    """Requests without names of their own are called by what they ask."""
    for method, path, *rest in asks:
        yield Ask(f"{section}: {method} {path}", method, path, *rest)


def beats(**more: object) -> dict[str, object]:
    """The config of a heartbeat connector (underscores for dots)."""
    return {
        "connector.class": BEAT,
        "source.cluster.alias": "A",
        "target.cluster.alias": "B-@RUN@",
        "source.cluster.bootstrap.servers": "@KAFKA@",
        "target.cluster.bootstrap.servers": "@KAFKA@",
        "heartbeats.topic.replication.factor": "1",
        "replication.policy.separator": ".",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def copies(**more: object) -> dict[str, object]:
    """The config of a source connector (underscores for dots)."""
    return {
        "connector.class": "MirrorSourceConnector",
        "source.cluster.alias": "S-@RUN@",
        "target.cluster.alias": "T",
        "source.cluster.bootstrap.servers": "@KAFKA@",
        "target.cluster.bootstrap.servers": "@KAFKA@",
        "topics": "orders-@RUN@",
        "tasks.max": "2",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "refresh.topics.interval.seconds": "1",
        "sync.topic.acls.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "heartbeats.replication.enabled": "false",
        "consumer.auto.offset.reset": "earliest",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def _named(name: object, config: object, **more: object) -> dict[str, object]:
    return {"name": name, "config": config, **more}


# -- paths and methods ---------------------------------------------------------------------------------

_PATHS = {
    "/": "GET",
    "/health": "GET",
    "/connectors": "GET POST",
    "/connectors/nope": "GET DELETE",
    "/connectors/nope/config": "GET PUT PATCH",
    "/connectors/nope/status": "GET",
    "/connectors/nope/restart": "POST",
    "/connectors/nope/pause": "PUT",
    "/connectors/nope/resume": "PUT",
    "/connectors/nope/stop": "PUT",
    "/connectors/nope/tasks": "GET POST",
    "/connectors/nope/tasks/0/status": "GET",
    "/connectors/nope/tasks/0/restart": "POST",
    "/connectors/nope/topics": "GET",
    "/connectors/nope/topics/reset": "PUT",
    "/connectors/nope/offsets": "GET PATCH DELETE",
    "/connectors/nope/fence": "PUT",
    "/connector-plugins": "GET",
    "/connector-plugins/MirrorHeartbeatConnector/config": "GET",
    "/connector-plugins/MirrorHeartbeatConnector/config/validate": "PUT",
    "/admin/loggers": "GET",
    "/admin/loggers/root": "GET PUT",
}
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


def _methods() -> Iterator[Ask]:
    """Every path: what it says to OPTIONS, and to the methods that it does not have."""
    for path, known in _PATHS.items():
        yield Ask(f"methods: OPTIONS {path}", "OPTIONS", path)
        for method in _METHODS:
            has = method in known.split() or (method == "HEAD" and "GET" in known)
            if not has:
                yield Ask(f"methods: {method} {path}", method, path)
    yield from _asks(
        "methods",
        ("HEAD", "/"),
        ("HEAD", "/health"),
        ("HEAD", "/connectors"),
        ("HEAD", "/connectors/nope"),
        ("HEAD", "/connectors/nope/topics"),
        ("HEAD", "/connector-plugins"),
        ("HEAD", "/admin/loggers"),
        ("TRACE", "/connectors"),
        ("CONNECTORS", "/connectors"),
    )


PATHS = tuple(
    _asks(
        "paths",
        ("GET", "/"),
        ("GET", "/?pretty=true"),
        ("GET", "/health"),
        ("GET", "/health/"),
        ("GET", "/nope"),
        ("GET", "/index.html"),
        ("GET", "/favicon.ico"),
        ("GET", "/application.wadl"),
        ("GET", "/CONNECTORS"),
        ("GET", "/connectors/"),
        ("GET", "/connectors//"),
        ("GET", "//connectors"),
        ("GET", "/connectors/nope/nope"),
        ("GET", "/connectors/nope/tasks-config"),
        ("GET", "/connectors/nope/config/"),
        ("GET", "/connectors/nope/tasks/x/status"),
        ("GET", "/connectors/nope/tasks/-1/status"),
        ("GET", "/connectors/nope/tasks/1.5/status"),
        ("GET", "/connectors/nope/tasks/99999999999/status"),
        ("GET", "/connectors/nope/tasks/0"),
        ("POST", "/connectors/nope/tasks/x/restart"),
        ("GET", "/connector-plugins/"),
        ("GET", "/connector-plugins/x"),
        ("GET", "/admin"),
        ("GET", "/admin/loggers/"),
        ("GET", "/connectors/%6Eope"),
        ("GET", "/connectors/%00"),
        ("GET", "/connectors/a%01b"),
        ("GET", "/connectors/a%7Fb"),
        ("GET", "/connectors/a%0Ab"),
        ("GET", "/connectors/%zz"),
        ("GET", "/connectors/%"),
        ("GET", "/connectors/%C3%BC"),
        ("GET", "/connectors/%E2%82%AC"),
        ("GET", "/connectors/%FF"),
        ("GET", "/connectors/a%2Fb"),
        ("GET", "/connectors/a%5Cb"),
        ("GET", "/connectors/a%25b"),
        ("GET", "/connectors/a%2Eb"),
        ("GET", "/connectors/a;b=c"),
        ("GET", "/connectors/a%3Bb"),
        ("GET", "/connectors/a+b"),
        ("GET", "/connectors/a%20b"),
        ("GET", "/connectors/a&b=c"),
        ("GET", "/connectors/{x}"),
        ("GET", "/connectors/a%22b"),
        ("GET", "/connectors/a|b"),
        ("GET", "/connectors/."),
        ("GET", "/connectors/.."),
        ("GET", "/connectors/../connectors"),
        ("GET", "/connectors/%2e%2e"),
        ("GET", "/connectors/..%2Fconnectors"),
    )
)

ABSENT = tuple(
    _asks(
        "absent",
        ("GET", "/connectors"),
        ("GET", "/connectors?expand=status"),
        ("GET", "/connectors?expand=info&expand=status"),
        ("GET", "/connectors?expand=nope"),
        ("GET", "/connectors?expand="),
        ("GET", "/connectors?expand"),
        ("GET", "/connectors?foo=bar"),
        ("GET", "/connectors/nope"),
        ("GET", "/connectors/nope/config"),
        ("GET", "/connectors/nope/status"),
        ("GET", "/connectors/nope/tasks"),
        ("GET", "/connectors/nope/tasks/0/status"),
        ("GET", "/connectors/nope/topics"),
        ("GET", "/connectors/nope/offsets"),
        ("DELETE", "/connectors/nope"),
        ("DELETE", "/connectors/nope?forward=false"),
        ("PUT", "/connectors/nope/pause"),
        ("PUT", "/connectors/nope/resume"),
        ("PUT", "/connectors/nope/stop"),
        ("PUT", "/connectors/nope/topics/reset"),
        ("POST", "/connectors/nope/restart"),
        ("POST", "/connectors/nope/restart?includeTasks=true"),
        ("POST", "/connectors/nope/restart?includeTasks=true&onlyFailed=true"),
        ("POST", "/connectors/nope/restart?onlyFailed=yes"),
        ("POST", "/connectors/nope/tasks/0/restart"),
        ("PATCH", "/connectors/nope/config", {"a": "b"}),
        ("PATCH", "/connectors/nope/config", {}),
        ("DELETE", "/connectors/nope/offsets"),
        ("PATCH", "/connectors/nope/offsets", {"offsets": [{"partition": {"a": 1}}]}),
    )
)

# -- media types ---------------------------------------------------------------------------------------

_CONTENT_TYPES = (
    "text/plain",
    "application/x-www-form-urlencoded",
    "application/xml",
    "application/json; charset=utf-8",
    "application/json;charset=ISO-8859-1",
    "APPLICATION/JSON",
    "application/vnd.api+json",
    "application/*",
    "*/*",
    "json",
    "multipart/form-data; boundary=x",
)
_ACCEPTS = (
    "application/json",
    "*/*",
    "application/*",
    "text/html",
    "application/xml, text/plain",
    "text/html, */*;q=0.1",
    "application/json;charset=utf-8",
    "application/json;q=0.5, text/plain",
    "application/vnd.api+json",
)


def _media_types() -> Iterator[Ask]:
    body = (
        b'{"connector.class": "MirrorHeartbeatConnector", "name": "x", "source.cluster.alias": "A"}'
    )
    validate = "/connector-plugins/MirrorHeartbeat/config/validate"
    for kind in _CONTENT_TYPES:
        said = {"Content-Type": kind}
        yield Ask(f"sent {kind}: validate", "PUT", validate, body, said)
        yield Ask(f"sent {kind}: pause", "PUT", "/connectors/nope/pause", None, said)
        yield Ask(f"sent {kind}: list", "GET", "/connectors", None, said)
    for headers in ({"Content-Type": ""}, {"Content-Type": None}):
        title = f"sent {headers['Content-Type']!r}"
        yield Ask(f"{title}: validate", "PUT", validate, body, headers)
        yield Ask(f"{title}: list", "GET", "/connectors", None, headers)
    for kind in _ACCEPTS:
        liked = {"Accept": kind}
        yield Ask(f"accept {kind}: list", "GET", "/connectors", None, liked)
        yield Ask(f"accept {kind}: absent", "GET", "/connectors/nope", None, liked)
    for kind in ("text/html", "application/json", "text/plain", "image/*;q=0.1, text/html;a=b"):
        yield Ask(f"accept {kind}: no path", "GET", "/nope", None, {"Accept": kind})
        yield Ask(f"accept {kind}: delete", "DELETE", "/connectors/nope", None, {"Accept": kind})
        yield Ask(f"accept {kind}: options", "OPTIONS", "/connectors", None, {"Accept": kind})
    yield Ask("origin: list", "GET", "/connectors", None, {"Origin": "http://example.org"})


# -- bodies --------------------------------------------------------------------------------------------

_BODIES: Mapping[str, bytes] = {
    "empty": b"",
    "blank": b"  \n",
    "half": b"{",
    "half a field": b'{"name": "x", "config"',
    "no JSON": b"hello",
    "an array": b"[]",
    "null": b"null",
    "a text": b'"text"',
    "a number": b"1",
    "true": b"true",
    "nothing in it": b"{}",
    "two documents": b'{"name":"x","config":{}} {"a": 1}',
    "rubbish after it": b'{"name":"x","config":{}}}',
    "single quotes": b"{'name': 'x', 'config': {}}",
    "comments": b'{"name": "x", /* no */ "config": {}}',
    "a comma too many": b'{"name": "x", "config": {},}',
    "NaN": b'{"name": "x", "config": {"a": NaN}}',
    "a leading zero": b'{"name": "x", "config": {"a": 01}}',
    "a byte order mark": b'\xef\xbb\xbf{"name": "x", "config": {}}',
    "UTF-16": '{"name": "x", "config": {}}'.encode("utf-16-le"),
    "no UTF-8": b'{"name": "\xff\xfe", "config": {}}',
    "a line feed in a text": b'{"name": "a\nb", "config": {}}',
    "fields twice": b'{"name": "x", "name": "", "config": {}}',
}
_CREATES: Mapping[str, object] = {
    "no config": {"name": "x"},
    "null config": _named("x", None),
    "empty config": _named("x", {}),
    "config is a list": _named("x", []),
    "config is a text": _named("x", "y"),
    "config is a number": _named("x", 1),
    "no name": {"config": {}},
    "no name, good config": {"config": beats()},
    "null name, good config": _named(None, beats()),
    "empty name": _named("", beats()),
    "blank name": _named("  ", beats()),
    "name is a list": _named([], beats()),
    "name is an object": _named({}, beats()),
    "control characters in the name": _named("a\u0007b", beats()),
    "a tab in the name": _named("a\tb", beats()),
    "unknown field": _named("x", {}, tasks=1),
    "tasks": _named("x", {}, tasks=[]),
    "upper case field": {"Name": "x", "config": {}},
    "unknown state": _named("x", beats(), initial_state="ON"),
    "empty state": _named("x", beats(), initial_state=""),
    "number as state": _named("x", beats(), initial_state=1),
    "boolean as state": _named("x", beats(), initial_state=True),
    "object as state": _named("x", beats(), initial_state={}),
    "list in the config": _named("x", beats(topics=["a"])),
    "object in the config": _named("x", beats(topics={"a": 1})),
    "null in the config": _named("x", beats(topics=None)),
    "null for a known key": _named("x", beats(tasks_max=None)),
    "other name": _named("x", beats(name="y")),
    "other case of the name": _named("x", beats(name="X")),
    "name with a blank": _named("x", beats(name="x ")),
    "null as name in the config": _named("", beats(name=None)),
    "number as name in the config": _named("x", beats(name=7)),
    "no class": _named("x", {"tasks.max": "1"}),
    "null class": _named("x", {"connector.class": None}),
    "empty class": _named("x", {"connector.class": ""}),
    "unknown class": _named("x", {"connector.class": "com.acme.X"}),
    "class of something else": _named("x", {"connector.class": "RegexRouter"}),
    "no alias": _named("x", {"connector.class": BEAT}),
    "no tasks": _named("x", beats(tasks_max="0")),
    "no tasks as a number": _named("x", beats(tasks_max=0)),
    "tasks as a fraction": _named("x", beats(tasks_max=1.5)),
    "tasks in words": _named("x", beats(tasks_max="one")),
    "many mistakes": _named("", {"connector.class": SOURCE, "tasks.max": -1, "topics": None}),
    "unknown step": _named("x", beats(transforms="a")),
    "checkpoints without syncs": _named(
        "x", {"connector.class": CHECKPOINT, "emit.offset-syncs.enabled": False}
    ),
}


def _bodies() -> Iterator[Ask]:
    targets = (
        ("create", "POST", "/connectors"),
        ("put", "PUT", "/connectors/x/config"),
        ("validate", "PUT", "/connector-plugins/MirrorHeartbeat/config/validate"),
        ("level", "PUT", "/admin/loggers/org.example.odd"),
        ("offsets", "PATCH", "/connectors/nope/offsets"),
    )
    for title, body in _BODIES.items():
        for target, method, path in targets:
            yield Ask(f"{target}: {title}", method, path, body)
    for title, document in _CREATES.items():
        yield Ask(f"create: {title}", "POST", "/connectors", document)
    puts: Mapping[str, object] = {
        "other name": beats(name="y"),
        "null name": {"name": None, "connector.class": SOURCE},
        "no class": {"tasks.max": "1"},
        "nested": beats(topics={"a": {}}),
        "bad values": {"connector.class": SOURCE, "tasks.max": "x", "offset.lag.max": "bad"},
    }
    for title, document in puts.items():
        yield Ask(f"put: {title}", "PUT", "/connectors/x/config", document)
    yield Ask("put: empty name", "PUT", "/connectors/%20/config", beats())
    yield Ask("create: nothing came of all this", "GET", "/connectors")


# -- names ---------------------------------------------------------------------------------------------

_NAMES = (
    "plain",
    "with space",
    "  blanks around  ",
    'quo"te',
    "apo'strophe",
    "semi;colon",
    "quest?ion",
    "ha#sh",
    "pl+us",
    "am&p=er",
    "br[ack]ets",
    "<b>|^`~",
    "ünïcödé",
    "日本 語",
    "emoji \U0001f600",
    "a:b@c,d!$()*",
    "..",
    "tasks",
    "x" * 300,
)
_UNREACHABLE = ("a/b", "per%cent", "%2F", "back\\slash", "{braces}", "braces{}")
"""A Java worker takes these names, and can then be asked no more about them: so they come last."""


def _names(names: Iterable[str]) -> Iterator[Step]:
    for name in names:
        title = f"name {name[:30]!r}"
        kept = name.strip()
        path = f"/connectors/{quote(kept, safe='')}"
        yield Ask(
            f"{title}: create",
            "POST",
            "/connectors",
            _named(name, beats(), initial_state="STOPPED"),
        )
        yield Ask(f"{title}: get", "GET", path)
        yield Ask(f"{title}: status", "GET", f"{path}/status", until="STOPPED")
        yield Ask(f"{title}: delete", "DELETE", path)
        yield Ask(f"{title}: gone", "GET", path)


def _names_put() -> Iterator[Step]:
    for title, path in (
        ("a slash", "/connectors/put%2Fit"),
        ("a blank", "/connectors/put%20it"),
        ("a plus", "/connectors/put+it"),
        ("a semicolon", "/connectors/put%3Bit"),
        ("a matrix parameter", "/connectors/put;it"),
        ("blanks around", "/connectors/%20put%20"),
        ("unicode", "/connectors/p%C3%BCt"),
    ):
        yield Ask(f"put with {title}: create", "PUT", f"{path}/config", beats())
        yield Ask(f"put with {title}: list", "GET", "/connectors")
        yield Ask(f"put with {title}: delete", "DELETE", path)
    yield Ask("name as a number: create", "POST", "/connectors", _named(17, beats()))
    yield Ask("name as a number: delete", "DELETE", "/connectors/17")
    yield Ask("name as a boolean: create", "POST", "/connectors", _named(True, beats()))
    yield Ask("name as a boolean: delete", "DELETE", "/connectors/true")


# -- lives ---------------------------------------------------------------------------------------------

_B = "/connectors/beat"
_PARTITION = {"sourceClusterAlias": "A", "targetClusterAlias": "B-@RUN@"}


def _beat_life() -> Iterator[Step]:
    odd = beats(tasks_max=1, enabled=True, note=1.50, other=12345678901234567890, third=1e3)
    yield from _asks(
        "beat",
        ("POST", "/connectors", _named("beat", odd | {"name": "beat"}), {}, "", "beat already"),
        ("GET", f"{_B}/config"),
        ("POST", "/connectors", _named("beat", beats())),
        ("POST", "/connectors", _named(" beat ", {"connector.class": BEAT})),
    )
    yield Await("beat", "RUNNING", 1)
    yield from _asks(
        "beat running",
        ("GET", _B, None, {}, '"task": 0'),
        ("GET", f"{_B}/"),
        ("HEAD", _B),
        ("GET", f"{_B}/status"),
        ("GET", f"{_B}/tasks"),
        ("GET", f"{_B}/tasks/"),
        ("GET", f"{_B}/tasks/0/status"),
        ("GET", f"{_B}/tasks/00/status"),
        ("GET", f"{_B}/tasks/1/status"),
        ("GET", f"{_B}/tasks/x/status"),
        ("GET", f"{_B}/topics", None, {}, "heartbeats"),
        ("GET", f"{_B}/offsets", None, {}, "sourceClusterAlias"),
        ("GET", "/connectors"),
        ("GET", "/connectors?expand=status"),
        ("GET", "/connectors?expand=info"),
        ("GET", "/connectors?expand=info&expand=status&expand=x"),
        ("GET", "/connectors?expand=info,status"),
        ("GET", "/connectors?expand=x"),
        ("PATCH", f"{_B}/offsets", {"offsets": [{"partition": _PARTITION, "offset": None}]}),
        ("DELETE", f"{_B}/offsets"),
        ("POST", f"{_B}/tasks/1/restart"),
        ("POST", f"{_B}/tasks/-1/restart"),
        ("POST", f"{_B}/tasks/0/restart"),
    )
    yield Await("beat", "RUNNING", 1)
    yield Ask("beat: restart", "POST", f"{_B}/restart")
    yield Await("beat", "RUNNING", 1)
    for flags in (
        "includeTasks=false",
        "includeTasks=true",
        "onlyFailed=true",
        "includeTasks=true&onlyFailed=true",
        "includeTasks=TRUE&onlyFailed=no",
        "includeTasks=",
        "includeTasks=1",
        "forward=true",
    ):
        yield Ask(f"beat: restart {flags}", "POST", f"{_B}/restart?{flags}")
        yield Await("beat", "RUNNING", 1)
    yield from _changes()
    yield from _states()
    yield from _offsets()


def _changes() -> Iterator[Step]:
    yield from _asks(
        "beat changed",
        ("PUT", f"{_B}/config", beats(emit_heartbeats_interval_seconds="2")),
        ("GET", f"{_B}/config"),
        ("PUT", f"{_B}/config/", beats(name="beat", emit_heartbeats_interval_seconds=1)),
    )
    patches: Mapping[str, object] = {
        "more": {"a.key": "x", "another": 3, "third": False},
        "less": {"a.key": None, "not.there": None},
        "nothing": {},
        "wrong value": {"tasks.max": "0"},
        "needed": {"source.cluster.alias": None},
        "class": {"connector.class": "com.acme.X"},
        "name": {"name": "other"},
        "no name": {"name": None},
        "nested": {"a": {"b": "c"}},
        "a list": ["a"],
        "null": None,
    }
    for title, patch in patches.items():
        body = b"null" if patch is None else patch
        yield Ask(f"beat: patch {title}", "PATCH", f"{_B}/config", body)
    yield Ask("beat: patched", "GET", f"{_B}/config")
    yield Ask("beat: patch back", "PUT", f"{_B}/config", beats())
    yield Await("beat", "RUNNING", 1)


def _states() -> Iterator[Step]:
    yield Ask("beat: pause", "PUT", f"{_B}/pause")
    yield Await("beat", "PAUSED", 1)
    yield from _asks(
        "beat paused",
        ("GET", f"{_B}/status"),
        ("GET", _B),
        ("PUT", f"{_B}/pause"),
        ("PUT", f"{_B}/pause", {}),
        ("PUT", f"{_B}/pause", b"rubbish"),
        ("DELETE", f"{_B}/offsets"),
        ("POST", f"{_B}/restart?includeTasks=true"),
    )
    yield Await("beat", "PAUSED", 1)
    yield Ask("beat paused: changed", "PUT", f"{_B}/config", beats(x="y"))
    yield Await("beat", "PAUSED", 1)
    yield Ask("beat: resume", "PUT", f"{_B}/resume")
    yield Await("beat", "RUNNING", 1)
    yield Ask("beat: resume again", "PUT", f"{_B}/resume/")
    yield Ask("beat: stop", "PUT", f"{_B}/stop")
    yield Await("beat", "STOPPED", 0)
    yield from _asks(
        "beat stopped",
        ("GET", f"{_B}/status"),
        ("GET", _B),
        ("GET", f"{_B}/tasks"),
        ("GET", f"{_B}/tasks/0/status"),
        ("POST", f"{_B}/tasks/0/restart", None, {}, "", "", True),
        ("PUT", f"{_B}/stop"),
        ("POST", f"{_B}/restart"),
        ("POST", f"{_B}/restart?includeTasks=true"),
    )
    yield Await("beat", "STOPPED", 0)
    yield from _asks(
        "beat stopped",
        ("GET", f"{_B}/topics"),
        ("PUT", f"{_B}/topics/reset"),
        ("PUT", f"{_B}/topics/reset?x=y", {}),
        ("GET", f"{_B}/topics", None, {}, "", "heartbeats"),
    )
    yield Ask("beat: pause when stopped", "PUT", f"{_B}/pause")
    yield Await("beat", "PAUSED", 0)
    yield Ask("beat: stop when paused", "PUT", f"{_B}/stop")
    yield Await("beat", "STOPPED", 0)


def _offsets() -> Iterator[Step]:
    def moved(partition: object, offset: object) -> object:
        return {"offsets": [{"partition": partition, "offset": offset}]}

    zero = {"offset": 0}
    alterations: Mapping[str, object] = {
        "as they are": moved(_PARTITION, zero),
        "other aliases": moved({"sourceClusterAlias": "X", "targetClusterAlias": "Y"}, zero),
        "more fields": moved({**_PARTITION, "more": 1.5}, {"offset": 0, "more": True}),
        "more fields, removed": moved({**_PARTITION, "more": 1.5}, None),
        "one": moved(_PARTITION, {"offset": 1}),
        "a text": moved(_PARTITION, {"offset": "0"}),
        "a fraction": moved(_PARTITION, {"offset": 0.0}),
        "null": moved(_PARTITION, {"offset": None}),
        "no offset": moved(_PARTITION, {}),
        "null partition": moved(None, zero),
        "null both": moved(None, None),
        "no partition": moved({}, zero),
        "half a partition": moved({"sourceClusterAlias": "A"}, zero),
        "numbers": moved({"sourceClusterAlias": 1, "targetClusterAlias": 2}, zero),
        "nested": moved({**_PARTITION, "deep": {"a": [1]}}, zero),
        "a list inside": moved(_PARTITION, {"offset": [0]}),
        "removed": moved({"sourceClusterAlias": "X", "targetClusterAlias": "Y"}, None),
        "removed, unknown": moved({"who": "knows"}, None),
        "left out": {"offsets": [{"partition": _PARTITION}]},
        "empty": {"offsets": []},
        "null list": {"offsets": None},
        "no list": {"offsets": {}},
        "text in the list": {"offsets": ["a"]},
        "null in the list": {"offsets": [None]},
        "unknown field": {"offsets": [], "more": 1},
        "unknown field inside": {"offsets": [{"partition": _PARTITION, "offset": zero, "x": 1}]},
        "partition is a text": moved("A", zero),
        "offset is a number": moved(_PARTITION, 0),
        "twice": {"offsets": [{"partition": _PARTITION, "offset": zero}] * 2},
    }
    seen = {
        "as they are": ('"A"', ""),
        "other aliases": ('"X"', ""),
        "more fields": ("1.5", ""),
        "more fields, removed": ("", "1.5"),
        "removed": ("", '"X"'),
        "left out": ("", '"A"'),
        "twice": ('"A"', ""),
    }
    for title, body in alterations.items():
        yield Ask(f"alter: {title}", "PATCH", f"{_B}/offsets", body)
        # A Java worker answers before it has read back what it wrote.
        until, until_not = seen.get(title, ("", ""))
        yield Ask(f"alter: {title}, seen", "GET", f"{_B}/offsets", None, {}, until, until_not)
    yield from _asks(
        "reset",
        ("DELETE", f"{_B}/offsets"),
        ("GET", f"{_B}/offsets", None, {}, "", "sourceClusterAlias"),
        ("DELETE", f"{_B}/offsets", {}),
        ("PUT", f"{_B}/resume"),
    )
    yield Await("beat", "RUNNING", 1)
    yield from _asks(
        "beat deleted",
        ("DELETE", f"{_B}/"),
        ("GET", _B),
        ("DELETE", _B),
        ("PUT", f"{_B}/pause"),
        ("GET", f"{_B}/status", None, {}, "404"),
        ("GET", "/connectors?expand=info"),
    )


def _born_states() -> Iterator[Step]:
    for state, text in (("PAUSED", "paused"), ("STOPPED", "STOPPED"), ("RUNNING", "Running")):
        name = f"born-{text}"
        path = f"/connectors/{name}"
        yield Ask(
            f"{name}: create",
            "POST",
            "/connectors",
            {"initial_state": text, "config": beats(), "name": name},
        )
        yield Await(name, state, 1 if state == "RUNNING" else 0)
        yield Ask(f"{name}: get", "GET", path)
        yield Ask(f"{name}: status", "GET", f"{path}/status")
        yield Ask(f"{name}: resume", "PUT", f"{path}/resume")
        yield Await(name, "RUNNING", 1)
        yield Ask(f"{name}: tasks", "GET", f"{path}/tasks")
        yield Ask(f"{name}: delete", "DELETE", path)
    yield Ask("born: null", "POST", "/connectors", _named("n", beats(), initial_state=None))
    yield Await("n", "RUNNING", 1)
    yield Ask("born: null, delete", "DELETE", "/connectors/n")


_S = "/connectors/copy"


def _copy_life() -> Iterator[Step]:
    def at(partition: object, offset: object, topic: object = "orders-@RUN@") -> object:
        where = {"cluster": "S-@RUN@", "partition": partition, "topic": topic}
        return {"offsets": [{"partition": where, "offset": offset}]}

    yield Ask("copy: create", "PUT", f"{_S}/config", copies())
    yield Await("copy", "RUNNING", 2)
    yield from _asks(
        "copy running",
        ("GET", _S, None, {}, '"task": 1'),
        ("GET", f"{_S}/status"),
        ("GET", f"{_S}/tasks"),
        ("GET", f"{_S}/topics", None, {}, "S-@RUN@.orders"),
        ("GET", f"{_S}/offsets", None, {}, '"partition": 0&&"partition": 1&&"offset": 2'),
        ("PATCH", f"{_S}/config", {"tasks.max": 1}),
    )
    yield Await("copy", "RUNNING", 1)
    yield Ask("copy: one task", "GET", f"{_S}/tasks", until_not='"task": 1')
    yield Ask("copy: stop", "PUT", f"{_S}/stop")
    yield Await("copy", "STOPPED", 0)
    alterations: Mapping[str, object] = {
        "back": at(0, {"offset": 0}),
        "far ahead": at(0, {"offset": 2**62}),
        "a text": at("0", {"offset": 0}),
        "below zero": at(-1, {"offset": 0}),
        "too large": at(2**31, {"offset": 0}),
        "offset below zero": at(0, {"offset": -1}),
        "offset as a fraction": at(0, {"offset": 1.5}),
        "topic is a number": at(0, {"offset": 1}, topic=1),
        "null topic": at(0, {"offset": 1}, topic=None),
        "taken away": at(0, None),
    }
    for title, body in alterations.items():
        yield Ask(f"copy: alter {title}", "PATCH", f"{_S}/offsets", body)
    yield Ask("copy: altered", "GET", f"{_S}/offsets", until_not='"partition": 0')
    yield Ask("copy: reset", "DELETE", f"{_S}/offsets")
    yield Ask("copy: was reset", "GET", f"{_S}/offsets", until_not="cluster")
    yield Ask("copy: delete", "DELETE", _S)


def _failed_life() -> Iterator[Step]:
    path = "/connectors/broken"
    bad = {"target.cluster.bootstrap.servers": "no address"}
    yield Ask("broken: create", "POST", "/connectors", _named("broken", beats() | bad))
    yield Await("broken", "FAILED", 0)
    yield from _asks(
        "broken",
        ("GET", path),
        ("GET", f"{path}/status"),
        ("GET", f"{path}/tasks"),
        ("POST", f"{path}/restart?onlyFailed=true"),
    )
    yield Await("broken", "FAILED", 0)
    yield from _asks(
        "broken",
        ("POST", f"{path}/restart"),
        ("POST", f"{path}/restart?onlyFailed=true&includeTasks=true"),
    )
    yield Await("broken", "FAILED", 0)
    yield Ask("broken: stop", "PUT", f"{path}/stop")
    yield Await("broken", "STOPPED", 0)
    yield Ask("broken: stopped", "GET", f"{path}/status")
    yield Ask("broken: mended", "PUT", f"{path}/config", beats())
    yield Ask("broken: resume", "PUT", f"{path}/resume")
    yield Await("broken", "RUNNING", 1)
    yield Ask("broken: delete", "DELETE", path)


# -- plugins, loggers, other workers ---------------------------------------------------------------------

PLUGINS = tuple(
    _asks(
        "plugins",
        ("GET", "/connector-plugins"),
        *(("GET", f"/connector-plugins?connectorsOnly={v}") for v in ("false", "TRUE", "x", "")),
        ("GET", "/connector-plugins/MirrorSourceConnector/config"),
        ("GET", f"/connector-plugins/{CHECKPOINT}/config/"),
        ("GET", "/connector-plugins/MirrorHeartbeat/config?version=4.3.1"),
        ("GET", "/connector-plugins/MirrorHeartbeat/config?version=9"),
        ("GET", "/connector-plugins/MirrorHeartbeat/config?version=%5B"),
        ("GET", "/connector-plugins/Nope/config"),
        ("GET", "/connector-plugins/a%2Fb/config"),
        ("GET", "/connector-plugins/RegexRouter/config"),
        ("GET", "/connector-plugins/JsonConverter/config"),
    )
)


def _validations() -> Iterator[Ask]:
    path = "/connector-plugins/{}/config/validate"
    least = {"connector.class": BEAT, "name": "x", "source.cluster.alias": "A"}
    cases: tuple[tuple[str, str, object], ...] = (
        ("good", "MirrorHeartbeatConnector", least),
        ("short name", "MirrorHeartbeat", least | {"connector.class": "MirrorHeartbeat"}),
        ("full name", BEAT, least),
        ("numbers", "MirrorHeartbeat", least | {"tasks.max": 2, "enabled": False}),
        ("mistakes", "MirrorHeartbeat", {"connector.class": BEAT, "tasks.max": "x"}),
        ("null", "MirrorHeartbeat", least | {"name": None}),
        ("nested", "MirrorHeartbeat", least | {"name": {}}),
        ("passwords", "MirrorSource", least | {"connector.class": SOURCE, "ssl.key.password": "p"}),
        ("source", "MirrorSourceConnector", copies(name="x")),
        ("checkpoints", "MirrorCheckpoint", least | {"connector.class": CHECKPOINT}),
        ("another class", "MirrorSource", least),
        ("no such class", "Nope", {"connector.class": "com.acme.Nope"}),
        ("no class", "MirrorHeartbeat", {"name": "x"}),
        ("nothing", "MirrorHeartbeat", {}),
    )
    for title, plugin, body in cases:
        yield Ask(f"validate: {title}", "PUT", path.format(plugin), body)


_L = "/admin/loggers/org.example.app"
LOGGERS = tuple(
    _asks(
        "loggers",
        ("GET", "/admin/loggers"),
        ("GET", "/admin/loggers/root"),
        ("GET", _L),
        ("GET", "/admin/loggers/a%2Fb"),
        ("PUT", _L, {"level": "WARN"}),
        ("GET", _L),
        ("GET", f"{_L}/"),
        ("PUT", f"{_L}?again", {"level": "warn"}),
        ("PUT", f"{_L}.part", {"level": "ERROR", "more": 1}),
        ("PUT", f"{_L}?scope=worker", {"level": "Debug"}),
        ("PUT", f"{_L}?scope=WORKER", {"level": "TRACE"}),
        ("PUT", f"{_L}?scope=nope", {"level": "INFO"}),
        ("PUT", f"{_L}?scope=", {"level": "OFF"}),
        ("PUT", f"{_L}?scope=cluster", {"level": "ERROR"}),
        ("GET", f"{_L}?after", None, {}, "ERROR"),
        ("GET", f"{_L}.part"),
        ("PUT", f"{_L}?scope=Cluster", {"level": "nope"}),
        ("PUT", f"{_L}?scope=cluster&none", {}),
        *(("PUT", f"{_L}?{n}", {"level": v}) for n, v in enumerate(("", " ", "LOUD", None, 5))),
        ("PUT", f"{_L}?list", {"level": ["WARN"]}),
        ("PUT", f"{_L}?case", {"Level": "WARN"}),
        ("PUT", "/admin/loggers/root?bad", {"level": "x"}),
    )
)

_SIGNED = "X-Connect-Authorization"
_ALGORITHM = "X-Connect-Request-Signature-Algorithm"
_INTERNAL: Mapping[str, tuple[Any, ...]] = {
    "tasks unsigned": ("POST", "/connectors/nope/tasks", []),
    "tasks without algorithm": ("POST", "/connectors/nope/tasks", [], {_SIGNED: "eA=="}),
    "tasks without signature": ("POST", "/connectors/x/tasks", [], {_ALGORITHM: "HmacSHA256"}),
    "tasks signed by an unknown algorithm": (
        "POST",
        "/connectors/nope/tasks",
        [],
        {_SIGNED: "eA==", _ALGORITHM: "HmacNope"},
    ),
    "tasks signed by another algorithm": (
        "POST",
        "/connectors/nope/tasks",
        [],
        {_SIGNED: "eA==", _ALGORITHM: "HmacSHA1"},
    ),
    "tasks signed in no base64": (
        "POST",
        "/connectors/nope/tasks",
        [],
        {_SIGNED: "!!", _ALGORITHM: "HmacSHA256"},
    ),
    "tasks signed wrongly": (
        "POST",
        "/connectors/nope/tasks",
        [],
        {_SIGNED: "eA==", _ALGORITHM: "HmacSHA256"},
    ),
    "tasks that are no list": (
        "POST",
        "/connectors/nope/tasks",
        {"a": 1},
        {_SIGNED: "eA==", _ALGORITHM: "HmacSHA256"},
    ),
    "tasks that are no JSON": (
        "POST",
        "/connectors/nope/tasks",
        b"x",
        {_SIGNED: "eA==", _ALGORITHM: "HmacSHA256"},
    ),
    "fence unsigned": ("PUT", "/connectors/nope/fence"),
    "fence signed wrongly": (
        "PUT",
        "/connectors/nope/fence",
        None,
        {_SIGNED: "eA==", _ALGORITHM: "HmacSHA256"},
    ),
    "fence with a body": ("PUT", "/connectors/nope/fence", {}),
}
INTERNAL = tuple(Ask(f"internal: {name}", *asked) for name, asked in _INTERNAL.items())


def _told_apart(steps: Iterable[Step]) -> tuple[Step, ...]:
    """A request that is made again has a number in its name."""
    seen: Counter[str] = Counter()
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Ask):
            seen[step.name] += 1
            if seen[step.name] > 1:
                step = step._replace(name=f"{step.name} ({seen[step.name]})")
        found.append(step)
    return tuple(found)


_ALL: tuple[Step, ...] = (
    *_methods(),
    *PATHS,
    *ABSENT,
    *_media_types(),
    *_bodies(),
    *PLUGINS,
    *_validations(),
    *LOGGERS,
    *INTERNAL,
    *_names(_NAMES),
    *_names_put(),
    *_beat_life(),
    *_born_states(),
    *_copy_life(),
    *_failed_life(),
    *_names(_UNREACHABLE),
)
STEPS = _told_apart(_ALL)
"""What a worker with its usual settings is asked."""

SETTINGS = {
    "access.control.allow.origin": "http://good.example, https://other.example:8443",
    "access.control.allow.methods": "GET,POST,PUT",
    "response.http.headers.config": '"set X-Frame-Options: DENY, SAMEORIGIN", add Cache-Control:no-store',
    "topic.tracking.enable": "false",
    "admin.listeners": "",
}
"""Of the worker that is asked what follows."""

_PREFLIGHT = {
    "Access-Control-Request-Method": "PUT",
    "Access-Control-Request-Headers": "content-type",
}


def _origins() -> Iterator[Ask]:
    for origin in (
        "http://good.example",
        "HTTP://GOOD.example",
        "https://other.example:8443",
        "http://bad.example",
        "http://good.example.org",
        "null",
        "http://bad.example http://good.example",
    ):
        headers = {"Origin": origin}
        yield Ask(f"origin {origin}: list", "GET", "/connectors", None, headers)
        yield Ask(f"origin {origin}: absent", "GET", "/connectors/nope", None, headers)
        yield Ask(f"origin {origin}: no path", "GET", "/nope", None, headers)
        yield Ask(
            f"origin {origin}: preflight", "OPTIONS", "/connectors", None, headers | _PREFLIGHT
        )


SETTINGS_STEPS: tuple[Step, ...] = (
    *_origins(),
    *_asks(
        "settings",
        ("GET", "/"),
        ("GET", "/health"),
        ("GET", "/connectors/nope/topics"),
        ("PUT", "/connectors/nope/topics/reset"),
        ("GET", "/admin/loggers"),
        ("PUT", "/admin/loggers/root", {"level": "INFO"}),
        ("POST", "/connectors", b"{"),
        ("GET", "/connectors", None, {"Accept": "text/html"}),
        ("PATCH", "/connectors"),
    ),
)


GUARDED_SETTINGS = {
    "rest.extension.classes": "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension",
}
"""Of the worker that is asked what follows; its one user is `alice` with the password `s3cret:1`."""

ALICE = "Basic YWxpY2U6czNjcmV0OjE="
_HEADERS: Mapping[str, str] = {
    "nobody": "",
    "alice": ALICE,
    "alice in lower case": "basic YWxpY2U6czNjcmV0OjE=",
    "a wrong password": "Basic YWxpY2U6d3Jvbmc=",
    "another user": "Basic Ym9iOnMzY3JldDox",
    "no colon": "Basic YWxpY2U=",
    "no base64": "Basic !!!",
    "another scheme": "Bearer YWxpY2U6czNjcmV0OjE=",
    "a scheme alone": "Basic",
}


def _guarded() -> Iterator[Ask]:
    for who, value in _HEADERS.items():
        headers = {"Authorization": value} if value else {}
        for method, path, body in (
            ("GET", "/", None),
            ("GET", "/health", None),
            ("GET", "/connectors", None),
            ("HEAD", "/connectors", None),
            ("OPTIONS", "/connectors", None),
            ("GET", "/connectors/nope", None),
            ("POST", "/connectors", {}),
            ("GET", "/nope", None),
            ("DELETE", "/connectors", None),
            ("PUT", "/admin/loggers/org.example.app", {"level": "x"}),
            ("POST", "/connectors/nope/tasks", []),
            ("PUT", "/connectors/nope/fence", None),
            ("POST", "/connectors/nope/fence", None),
        ):
            yield Ask(f"{who}: {method} {path}", method, path, body, headers)
        html = {**headers, "Accept": "text/html"}
        yield Ask(f"{who}: GET /connectors as HTML", "GET", "/connectors", None, html)
        form = {**headers, "Content-Type": "text/plain"}
        yield Ask(f"{who}: PUT text", "PUT", "/connectors/nope/pause", None, form)


GUARDED_STEPS: tuple[Step, ...] = tuple(_guarded())


def filled(value: object, run: str, kafka: str) -> Any:
    """A path, body or expected text with what its place-holders stand for."""
    text = json.dumps(value).replace("@RUN@", run).replace("@KAFKA@", kafka)
    return json.loads(text)
