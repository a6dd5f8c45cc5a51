"""What is measured, as data: the source of each workload, how it runs, the ratio to hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType


class Bound(StrEnum):
    AT_LEAST = "≥"
    AT_MOST = "≤"


@dataclass(frozen=True, slots=True)
class Bar:
    """sparkmirror's value of a metric divided by MirrorMaker 2's must keep to this ratio; or that value itself."""

    metric: str
    bound: Bound
    ratio: float
    absolute: bool = False

    def holds(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.bound is Bound.AT_LEAST else ratio <= self.ratio


@dataclass(frozen=True, slots=True)
class Batched:
    """Source written by Kafka's own producer with these settings."""

    compression: str
    batch_size: int = 16384
    linger_ms: int = 5

    def __str__(self) -> str:
        if self.batch_size == 0:
            return f"{self.compression}, one record per batch"
        return f"{self.compression}, batch.size={self.batch_size} linger.ms={self.linger_ms}"


@dataclass(frozen=True, slots=True)
class Compacted:
    """Keyed source; every `supersede`-th record of a partition is superseded by the next one."""

    compression: str
    supersede: int = 5

    def __str__(self) -> str:
        return f"{self.compression}, 1 of {self.supersede} records compacted away"


@dataclass(frozen=True, slots=True)
class Transactional:
    """Source in transactions of which every `abort`-th is aborted."""

    compression: str
    producers: int = 4
    records: int = 500
    abort: int = 5

    def __str__(self) -> str:
        return f"{self.compression}, transactions of {self.records}, 1 of {self.abort} aborted"


Fill = Batched | Compacted | Transactional


@dataclass(frozen=True, slots=True)
class Throughput:
    """The source is full before the replicator starts; measured until all has arrived."""

    name: str
    title: str
    records: int
    record_size: int
    fill: Fill
    bars: tuple[Bar, ...]
    partitions: int = 8
    # Whether the source is reached through the delaying proxy.
    far: bool = False
    # What records hold that the flow's query drops; MirrorMaker 2 copies those too.
    dropped: bytes = b""
    # How often both replicators run, in turn; medians are shown.
    rounds: int = 1

    @property
    def topic(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Latency:
    """From the producer's call to the consumer's hands, at a steady pace."""

    name: str
    title: str
    rates: tuple[int, ...]
    seconds: float
    warm_up: float
    bars: tuple[Bar, ...]
    partitions: int = 8
    record_size: int = 200


@dataclass(frozen=True, slots=True)
class Idle:
    """Many partitions, little traffic: what the replicator costs while it has nothing to do."""

    name: str
    title: str
    topics: int
    partitions: int
    rate: int
    seconds: float
    settle: float
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """From the start of the process to the first record on the target; median of some starts."""

    name: str
    title: str
    repeats: int
    bars: tuple[Bar, ...]
    partitions: int = 8


@dataclass(frozen=True, slots=True)
class Beside:
    """Topics that are copied while one more passes through a query; against the same flow without the query. Both are warm."""

    name: str
    title: str
    topics: int
    records: int
    queried: int
    record_size: int
    fill: Batched
    query: str
    dropped: bytes
    bars: tuple[Bar, ...]
    rounds: int = 10
    warm_ups: int = 3
    # How large a backlog is before it counts.
    warm_up: float = 0.3
    partitions: int = 2

    def counts(self, scale: float = 1.0) -> list[int]:
        """How many records each topic gets in a round, the one with the query last."""
        return [int(count * scale) for count in (*[self.records] * self.topics, self.queried)]


Workload = Beside | Throughput | Latency | Idle | Start

RECORDS_PER_S = "records/s"
MB_PER_S = "MB/s"
CPU_PER_GB = "CPU s/GB"
CPU_PER_MILLION = "CPU s/M records"
CPU_PERCENT = "CPU %"
PSS_MEAN = "PSS mean MB"
PSS_PEAK = "PSS peak MB"
START_S = "start s"
BESIDE = "speed beside a query"


def percentile_metric(percent: int, rate: int) -> str:
    return f"p{percent} ms @{rate}/s"


def _faster(ratio: float) -> Bar:
    return Bar(RECORDS_PER_S, Bound.AT_LEAST, ratio)


_LEAN = Bar(CPU_PER_GB, Bound.AT_MOST, 0.1)
_RATES = (1000, 100)
_LATENCY_BARS = tuple(
    Bar(percentile_metric(percent, rate), Bound.AT_MOST, ratio)
    for rate in _RATES
    for percent, ratio in ((50, 0.4), (99, 0.8))
)

# Copying batches as they are costs by the batch, so it matters how the source was written. W1 to W3 are shown for a
# producer that is tuned as MirrorMaker 2's own is in this benchmark, and for one with Kafka's defaults (16 KiB): both
# are held to the same bars.
_TUNED = (131072, 20)
_LARGE, _DEFAULT = "128 KiB batches", "16 KiB batches"
_DROPPED = b'"kind":"order"'


def _one_kilobyte(name: str, codec: str, label: str) -> tuple[Throughput, Throughput]:
    bars = (_faster(3), _LEAN)
    tuned, default = Batched(codec, *_TUNED), Batched(codec)
    return (
        Throughput(name, f"1 KB {label}, {_LARGE}", 1_000_000, 1000, tuned, bars),
        Throughput(f"{name}d", f"1 KB {label}, {_DEFAULT}", 1_000_000, 1000, default, bars),
    )


FILTER_AND_MASK = (
    'SELECT regexp_replace(CAST(value AS STRING), \'"trace":"[0-9a-f]+"\', \'"trace":"***"\') AS value '
    "FROM records WHERE get_json_object(CAST(value AS STRING), '$.kind') <> 'order'"
)

FILTER_EACH_AND_MASK = (
    f"{FILTER_AND_MASK} AND length(get_json_object(CAST(value AS STRING), '$.id')) = 16"
)

# Each value is taken apart and put together again, and comes out as it was.
THROUGH = (
    "SELECT concat(substr(value, 1, 10), substr(value, 11)) AS value FROM records "
    "WHERE length(value) > 0"
)


def _beside(name: str, title: str, query: str) -> Beside:
    bars = (Bar(BESIDE, Bound.AT_LEAST, 0.95, absolute=True),)
    fill = Batched("lz4", *_TUNED)
    return Beside(name, title, 9, 200_000, 500_000, 1000, fill, query, _DROPPED, bars)


WORKLOADS: tuple[Workload, ...] = (
    *_one_kilobyte("W1", "none", "plain"),
    *_one_kilobyte("W2", "lz4", "lz4"),
    *_one_kilobyte("W3", "zstd", "zstd"),
    Throughput("W4", "100 B lz4", 5_000_000, 100, Batched("lz4", 65536, 20), (_faster(5),)),
    Throughput("W5", "200 B, tiny batches", 300_000, 200, Batched("none", 0, 0), (_faster(2),)),
    Throughput("W6", "300 B compacted", 1_000_000, 300, Compacted("lz4"), (_faster(2),)),
    Throughput("W7", "1 KB transactional", 500_000, 1000, Transactional("lz4"), (_faster(2),)),
    Latency("W8", "latency", _RATES, 60, 10, _LATENCY_BARS),
    Throughput(
        "W9",
        "1 partition, 100 ms away",
        300_000,
        1000,
        Batched("none", 65536, 20),
        (_faster(5),),
        partitions=1,
        far=True,
    ),
    Idle(
        "W10",
        "2000 partitions, 50 records/s",
        topics=20,
        partitions=100,
        rate=50,
        seconds=60,
        settle=20,
        bars=(
            Bar(CPU_PERCENT, Bound.AT_MOST, 0.5),
            Bar(PSS_MEAN, Bound.AT_MOST, 1.0),
            Bar(PSS_PEAK, Bound.AT_MOST, 1.0),
        ),
    ),
    Start("W11", "process start to first record", 3, (Bar(START_S, Bound.AT_MOST, 1.2),)),
    Throughput(
        "W12",
        "W2's records through a filter and a mask",
        1_000_000,
        1000,
        Batched("lz4", *_TUNED),
        (_faster(1), Bar(CPU_PER_MILLION, Bound.AT_MOST, 1.0)),
        dropped=_DROPPED,
        rounds=5,
    ),
    Throughput(
        "W12u",
        "the same, by a field that differs in every record",
        1_000_000,
        1000,
        Batched("lz4", *_TUNED),
        (),
        dropped=_DROPPED,
        rounds=3,
    ),
    _beside("W13", "nine topics beside one with a query", FILTER_AND_MASK),
    _beside("W13u", "the same, by a field that differs in every record", FILTER_EACH_AND_MASK),
    Latency(
        "W14",
        "latency through a query",
        (1000,),
        30,
        15,
        (Bar(percentile_metric(50, 1000), Bound.AT_MOST, 700, absolute=True),),
    ),
)

QUICK = ("W2", "W8")
QUICK_SECONDS = 20.0
QUICK_WARM_UP = 6.0

# Keys of the flow that only some workloads need; both replicators get the same file.
EXTRA_PROPERTIES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "W7": {"{source}.consumer.isolation.level": "read_committed"},
        # Latency is measured with the producer's own default, not with the throughput tuning.
        # To MirrorMaker 2 these keys say nothing: it copies as ever.
        "W12": {"{source}->target.transform.sql": FILTER_AND_MASK},
        "W12u": {"{source}->target.transform.sql": FILTER_EACH_AND_MASK},
        "W14": {
            "target.producer.linger.ms": "5",
            "target.producer.batch.size": "16384",
            "{source}->target.transform.sql": THROUGH,
        },
        "W8": {"target.producer.linger.ms": "5", "target.producer.batch.size": "16384"},
    }
)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which workloads run, and how large."""

    names: tuple[str, ...] = ()
    quick: bool = False
    scale: float = 1.0
    known: tuple[Workload, ...] = field(default=WORKLOADS)

    def workloads(self) -> tuple[Workload, ...]:
        names = self.names or (QUICK if self.quick else tuple(w.name for w in self.known))
        return tuple(self._sized(workload) for workload in self.known if workload.name in names)

    def unknown(self) -> tuple[str, ...]:
        known = {workload.name for workload in self.known}
        return tuple(name for name in self.names if name not in known)

    def _sized(self, workload: Workload) -> Workload:
        if isinstance(workload, Throughput):
            return replace(workload, records=max(1000, int(workload.records * self.scale)))
        if isinstance(workload, Beside):
            return replace(
                workload,
                records=max(1000, int(workload.records * self.scale)),
                queried=max(1000, int(workload.queried * self.scale)),
            )
        if isinstance(workload, Latency):
            if self.quick:
                workload = replace(workload, seconds=QUICK_SECONDS, warm_up=QUICK_WARM_UP)
            return replace(workload, seconds=max(5.0, workload.seconds * min(1.0, self.scale)))
        if isinstance(workload, Idle):
            return replace(
                workload,
                topics=max(1, int(workload.topics * self.scale)),
                seconds=max(10.0, workload.seconds * min(1.0, self.scale)),
            )
        return workload
