"""Brokers of other makes and ages as the proxy shows them: what each offers, from the lists that were published.

What a list does not name is hidden. Versions that a list leaves open are those of the Apache broker behind the proxy.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_proxy import Shown
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

_EVERY = frozenset(range(93))


def _only(most: Mapping[int, int]) -> Shown:
    return Shown(most, _EVERY - most.keys())


KAFKA_2_1 = _only({key: high for key, (_, high) in BROKER_API_VERSIONS[2, 1].items()})
"""What Apache Kafka 2.1 answers to ApiVersions, as kafka-python 3.0 keeps it."""

REDPANDA = Shown(
    # As its request handlers were declared (redpanda-data/redpanda, src/v/kafka/server/handlers, read 2026-11-19).
    {0: 7, 1: 11, 3: 7, 8: 8, 9: 7, 11: 6, 18: 3, 23: 4, 37: 3},
    frozenset({68, 69, 71, 72, 75, 76, 77, 78, 79, 80}),
)

EVENT_HUBS = _only(
    # IBM/sarama issue 2470 (2023-08-15) and Azure/azure-event-hubs-for-kafka issue 209 (2022-09-23). A shared namespace has
    # InitProducerId since; the older list does not name it.
    {
        0: 7, 1: 6, 2: 7, 3: 5, 8: 8, 9: 8, 10: 1, 11: 7, 12: 4, 13: 4, 14: 5, 15: 5, 16: 4, 17: 1, 18: 3, 19: 2, 20: 2,
        22: 1, 32: 2, 36: 1, 37: 1, 42: 0,
    }
)  # fmt: skip

WARPSTREAM = Shown(
    # docs.warpstream.com, "Protocol and Feature Support" (read 2026-11-19), which names APIs and no versions.
    {},
    _EVERY
    - {
        0,
        1,
        2,
        3,
        8,
        9,
        10,
        11,
        12,
        13,
        14,
        15,
        16,
        17,
        18,
        19,
        20,
        22,
        24,
        25,
        26,
        28,
        29,
        30,
        31,
        32,
        33,
        36,
        37,
    }
    - {42, 47, 60, 65, 66},
)

PROFILES: Mapping[str, Shown] = {
    "kafka-2.1": KAFKA_2_1,
    "redpanda": REDPANDA,
    "event-hubs": EVENT_HUBS,
    "warpstream": WARPSTREAM,
}
