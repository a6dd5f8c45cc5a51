"""Our transforms and Kafka's own, on the same settings and records: class by class, and in a real worker of Java beside ours."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator, Mapping, Sequence

import pytest
from copied import Content, content
from copying import Flow
from java_connect import JavaConnectWorker
from java_source import ask_java
from kafka_tools import NewRecord, consume, create_topic, end_offsets, produce, topics, wait_for

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.errors import ConfigError
from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.transforms.chain import TransformChain
from sparkmirror.transforms.literals import header_bytes
from sparkmirror.transforms.record import ConnectRecord

_REFUSED = "refused"
_DAY_MS = 86_400_000


def coded(*fields: str) -> str:
    return " ".join(base64.b64encode(field.encode()).decode() for field in fields)


def answers(lines: Sequence[str]) -> list[str | None]:
    """What Java says: texts, None for null, and `refused`."""
    found: list[str | None] = []
    for line in ask_java("TransformsPeer", lines):
        plain = line in ("null", _REFUSED)
        text = line if plain else base64.b64decode(line).decode()
        found.append(None if line == "null" else text)
    return found


# -- literals -------------------------------------------------------------------------------------

_ATOMS = [
    *("a", "b c", "1", "2.5", "-3", "true", "null", '"', '"x"', '"2020-01-01"', "[", "]", "{", "}"),
    *(":", ",", " ", "\\", "99999", "12:34:56.789Z", "2020-02-03", "1e5", "0.1", "e", '\\"', "T"),
    *(".", "+", "-", "0", "2020-01-01T10:11:12.013Z", "-0.0", "1e-7"),
]
_KEYS = ("a", "b", "c", "d")


def literals(rng: random.Random) -> list[str]:
    """All sorts of them: soups of what has a meaning, values within values, numbers, dates."""
    soups = ["".join(rng.choices(_ATOMS, k=rng.randint(1, 9))) for _ in range(3000)]
    values = [nested(rng, 0) for _ in range(2000)]
    numbers = [
        f"{rng.uniform(-1, 1) * 10 ** rng.randint(-5, 6):.{rng.randint(1, 6)}g}" for _ in range(500)
    ]
    dates = [
        f"{rng.randint(1, 2500):04}-{rng.randint(0, 15):02}-{rng.randint(0, 40):02}"
        for _ in range(300)
    ]
    return [*soups, *values, *numbers, *dates]


def nested(rng: random.Random, depth: int) -> str:
    kind = rng.randint(0, 7 if depth < 3 else 5)
    if kind == 6:
        return f"[{', '.join(nested(rng, depth + 1) for _ in range(rng.randint(0, 3)))}]"
    if kind == 7:
        rows = [f'"{rng.choice(_KEYS)}":{nested(rng, depth + 1)}' for _ in range(rng.randint(0, 3))]
        return f"{{{','.join(rows)}}}"
    return str(
        (
            rng.choice((1, 5, 300, 70_000, -7)),
            rng.choice((0.5, 1.25, 3.3, 0.1)),
            f'"{rng.choice(("a", "b c", "x:y", "2020-01-01", ""))}"',
            rng.choice(("true", "false")),
            "null",
            rng.choice((1 << 20, -300)),
        )[kind]
    )


def test_headers_get_the_bytes_that_java_gives_them() -> None:
    wanted = literals(random.Random(7))
    refused = 0
    for literal, expected in zip(
        wanted, answers([coded("header", t) for t in wanted]), strict=True
    ):
        try:
            found = header_bytes(literal)
        except ConfigError:
            refused += 1
            continue
        assert found == (None if expected is None else expected.encode()), literal
    assert refused < len(wanted) // 20  # lists of several kinds


# -- names ----------------------------------------------------------------------------------------

_DATE_PATTERNS = [
    *(
        "yyyyMMdd",
        "yyyy-MM-dd'T'HH:mm:ss.SSSZ",
        "yy",
        "y",
        "yyyyy",
        "YYYY-ww",
        "W",
        "DDD",
        "d",
        "F",
    ),
    *("E", "EEEE", "u", "hh a", "K", "kk", "H", "m", "s", "SSSS", "z", "zzzz", "X", "XXX", "G"),
    *("MMM", "MMMM", "M", "LLL", "''yyyy''", "'it''s' yy", "q", "'open", "XXXX", "b", "MMMMM"),
]
_REGEXES = [
    ("(.*)", "$1-x"),
    (r"A\.(.*)", "$1"),
    ("a|ab", "Z"),
    ("(a)(b)?", "$2$1"),
    (r"(?<name>.*)-\d+", "${name}"),
    ("(.*)", r"\$1"),
    ("(.*)", r"a\\b"),
    ("(.)(.*)", "$12"),
    ("(.*)", "$2"),
    ("(.*)", "$"),
    ("(.*)", "${x}"),
    ("(.*)", "\\"),
    (r"(\w+)\.(\w+)", "$2.$1"),
    ("(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)(.*)", "$11$10$1"),
    ("(.*)", "$00"),
    (r"[^.]*\.(.*)", "copy.$1"),
    ("a*", "x"),
    ("(.*?)(b*)", "[$1|$2]"),
    ("(?i)A.*", "x"),
]
_TOPICS = ["ab", "A.orders", "orders-12", "abcdefghijklmnop", "a.b", "abbb"]


def routed(kind: str, settings: tuple[str, str], topic: str, time: int) -> str:
    keys = ("regex", "replacement") if kind == "regex" else ("topic.format", "timestamp.format")
    name = "RegexRouter" if kind == "regex" else "TimestampRouter"
    props = {f"transforms.x.{key}": value for key, value in zip(keys, settings, strict=True)}
    try:
        chain = TransformChain.parse({"transforms": "x", "transforms.x.type": name, **props})
    except ConfigError:
        return _REFUSED
    assert chain is not None
    after = chain.apply(ConnectRecord(topic, 0, 0, time, None, None, []))
    assert after is not None
    return after.topic


def test_routers_give_the_names_that_java_gives() -> None:
    rng = random.Random(3)
    rows = [
        ("time", (rng.choice(("${topic}-${timestamp}", "${timestamp}${topic}${topic}")), p), "t", t)
        for p in _DATE_PATTERNS
        for t in (0, -1, *(rng.randint(0, 2 * 10**12) for _ in range(10)), rng.randint(0, 10**14))
    ]
    rows += [("regex", settings, topic, 0) for settings in _REGEXES for topic in _TOPICS]
    lines = [coded(kind, *settings, topic, str(time)) for kind, settings, topic, time in rows]
    for row, expected in zip(rows, answers(lines), strict=True):
        found = routed(*row)
        # Java finds out about a wrong replacement when the first name matches.
        if found == _REFUSED and row[0] == "regex" and expected == row[2]:
            continue
        assert found == expected, row


# -- a worker beside ours -------------------------------------------------------------------------

_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_PACKAGE = "org.apache.kafka.connect.transforms"
_RENAME = {
    "type": f"{_PACKAGE}.RegexRouter",
    "regex": r"(.)\.(.*)",
    "replacement": "$2.from-$1",
}
_BY_DAY = {"type": f"{_PACKAGE}.TimestampRouter", "timestamp.format": "yyyy.MM.dd"}
_DROP = {"type": f"{_PACKAGE}.DropHeaders", "headers": "drop,n"}
_TOMBSTONE = {"type": f"{_PACKAGE}.predicates.RecordIsTombstone"}
_MARKED = {"type": f"{_PACKAGE}.predicates.HasHeaderKey", "name": "keep"}
_NAMED = {"type": f"{_PACKAGE}.predicates.TopicNameMatches", "pattern": r".*\.from-."}
_FILTER = {"type": f"{_PACKAGE}.Filter"}
_LITERALS = ("eu-1", "007", "1.50", "true", '{"a": [1, 2.5]}', "null", "2024-02-30")


def _config(
    transforms: Mapping[str, Mapping[str, str]], predicates: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    config = {"transforms": ",".join(transforms), "predicates": ",".join(predicates)}
    for kind, found in (("transforms", transforms), ("predicates", predicates)):
        for alias, settings in found.items():
            config |= {f"{kind}.{alias}.{key}": value for key, value in settings.items()}
    return config


CASES: dict[str, dict[str, str]] = {
    "filtered": _config(
        {
            "f": {**_FILTER, "predicate": "dead"},
            "d": {**_DROP, "predicate": "keep", "negate": "true"},
        },
        {"dead": _TOMBSTONE, "keep": _MARKED},
    ),
    "renamed": _config({"r": _RENAME, "d": {**_DROP, "predicate": "named"}}, {"named": _NAMED}),
    "by-day": _config(
        {
            "r": {**_RENAME, "predicate": "keep"},
            "t": {**_BY_DAY, "predicate": "named", "negate": "true"},
            "f": {**_FILTER, "predicate": "dead"},
        },
        {"keep": _MARKED, "named": _NAMED, "dead": _TOMBSTONE},
    ),
    "headers": _config(
        {
            f"h{i}": {"type": f"{_PACKAGE}.InsertHeader", "header": f"h{i}", "value.literal": text}
            for i, text in enumerate(_LITERALS)
        },
        {},
    ),
}


def connector(cluster: KafkaCluster, topic: str, transforms: Mapping[str, str]) -> dict[str, str]:
    """MirrorMaker's source connector from the cluster to itself, under the alias J."""
    return {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "tasks.max": "2",
        "source.cluster.alias": "J",
        "target.cluster.alias": "K",
        "source.cluster.bootstrap.servers": cluster.bootstrap,
        "target.cluster.bootstrap.servers": cluster.bootstrap,
        "topics": topic,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "sync.topic.acls.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "topic.creation.default.partitions": "2",
        "topic.creation.default.replication.factor": "1",
        **transforms,
    }


def rows(partition: int, *, with_headers: bool) -> list[NewRecord]:
    found = []
    for i in range(60):
        headers: list[tuple[str, bytes | None]] = [("n", b"%d" % i)]
        if i % 3 == 0:
            headers += [("drop", b"\xff\x00"), ("drop", None), ("keep", None)]
        found.append(
            NewRecord(
                None if i % 11 == 0 else b"k%d" % i,
                None if i % 7 == 0 else b"%d:%d" % (partition, i),
                partition,
                1_700_000_000_000 + i % 4 * _DAY_MS + i,
                tuple(headers) if with_headers else (),
            )
        )
    return found


def held(cluster: KafkaCluster, names: Sequence[str]) -> dict[str, list[Content]]:
    return {name: [content(row) for row in consume(cluster.bootstrap, name)] for name in names}


def count(cluster: KafkaCluster, names: Sequence[str]) -> int:
    known = topics(cluster.bootstrap)
    ends = [end_offsets(cluster.bootstrap, name) for name in names if name in known]
    return sum(sum(end.values()) for end in ends)


@pytest.fixture(scope="module")
def java_worker(
    peer_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaConnectWorker]:
    directory = tmp_path_factory.mktemp("transforms")
    with JavaConnectWorker(peer_cluster.bootstrap, directory, "transforms") as worker:
        yield worker


@pytest.mark.parametrize("case", CASES)
def test_records_arrive_as_with_a_java_worker(
    peer_cluster: KafkaCluster, java_worker: JavaConnectWorker, case: str
) -> None:
    """The default header converter, which Java's literals need, would write copied headers as base64: those records have none."""
    cluster, topic, transforms = peer_cluster, f"transformed-{case}", CASES[case]
    literal = case == "headers"
    create_topic(cluster.bootstrap, topic, 2)
    for partition in range(2):
        produce(cluster.bootstrap, topic, rows(partition, with_headers=not literal))
    config = connector(cluster, topic, transforms)
    if not literal:
        config["header.converter"] = _BYTES
    created = java_worker.request("PUT", f"/connectors/{case}/config", config)
    assert created.status == 201, created.body
    ours = copied(cluster, topic, transforms)
    twins = {name: theirs(name) for name in ours}
    total = sum(len(found) for found in ours.values())
    wait_for("Java has copied all", lambda: count(cluster, list(twins.values())) >= total)
    java_worker.await_state(case, "RUNNING", 2)
    java = held(cluster, list(twins.values()))
    assert {twins[name]: found for name, found in ours.items()} == java


def theirs(name: str) -> str:
    """What a topic of ours is called with Java."""
    return (
        name.replace("A.", "J.", 1) if name.startswith("A.") else name.replace("from-A", "from-J")
    )


def copied(
    cluster: KafkaCluster, topic: str, transforms: Mapping[str, str]
) -> dict[str, list[Content]]:
    """The records as our copy task writes them."""
    chain = TransformChain.parse(transforms)
    assert chain is not None
    remote = f"A.{topic}"
    narrowed = chain.on(remote)
    assert narrowed is not None
    create_topic(cluster.bootstrap, narrowed.target or remote, 2)
    expected = 0
    names: set[str] = set()
    for row in consume(cluster.bootstrap, topic):
        record = ConnectRecord(remote, *row[:3], row.key, row.value, list(row.headers))
        after = chain.apply(record)
        if after is not None:
            expected += 1
            names.add(after.topic)
    flow = Flow(cluster, cluster, topic)
    plans = [PartitionPlan(topic, partition, remote) for partition in range(2)]
    try:
        with flow.copying(plans, transforms=chain) as task:
            task.until("all is copied", lambda: count(cluster, list(names)) >= expected)
    finally:
        flow.close()
    return held(cluster, list(names))
