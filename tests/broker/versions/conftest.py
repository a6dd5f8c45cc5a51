"""A source and a target of each pair of versions, and one `sparkmirror run` between them, for all tests of the pair.

`make brokers` runs all of them, `make test` those of two pairs that are not slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cluster_pair import ClusterPair, VersionPair, running_pair
from running import Mirror
from versioned import (
    PREFIX,
    VersionedTopic,
    mirror_keys,
    version_pairs,
)

from sparkmirror.tools.jvm import KAFKA_VERSION

NewTopic = Callable[..., VersionedTopic]


# These two have a short part in `make test`: what is not slow.
SHORT = {VersionPair("2.4.1", KAFKA_VERSION), VersionPair(KAFKA_VERSION, "2.4.1")}
PAIRS = [
    pytest.param(pair, id=str(pair), marks=[] if pair in SHORT else [pytest.mark.slow])
    for pair in version_pairs()
]


@pytest.fixture(scope="session", params=PAIRS)
def versions(request: pytest.FixtureRequest) -> VersionPair:
    """The versions of source and target."""
    pair: VersionPair = request.param
    return pair


@pytest.fixture(scope="session")
def pair(versions: VersionPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterPair]:
    """One broker of each; a test that ends one must start it again."""
    yield from running_pair(1, tmp_path_factory.mktemp(str(versions)), versions)


@pytest.fixture(scope="session")
def started(
    pair: ClusterPair, versions: VersionPair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mirror]:
    aliases = {"A": pair.source, "B": pair.target}
    with Mirror(tmp_path_factory.mktemp(f"mirror-{versions}"), mirror_keys(aliases, "A->B")) as run:
        yield run


@pytest.fixture
def mirror(started: Mirror) -> Mirror:
    """`sparkmirror run` from A to B, running: started again if a test before left it stopped."""
    assert started.process is not None
    if started.process.poll() is not None:
        started.start()
    return started


@pytest.fixture
def new_topic(pair: ClusterPair, mirror: Mirror, unique: Callable[[str], str]) -> NewTopic:
    """Makes topics that the mirror copies."""

    def make(partitions: int = 2, **options: Any) -> VersionedTopic:
        return VersionedTopic(pair, unique(PREFIX), partitions, **options)

    return make
