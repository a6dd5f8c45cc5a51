"""The replicator's own topics: a name in, a compacted topic of one partition on the cluster out."""

from __future__ import annotations

import logging

from sparkmirror.kafka import messages
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster

from . import metadata

log = logging.getLogger(__name__)


def provide_compacted(cluster: Cluster, topic: str, factor: int, *, may_lower_factor: bool) -> None:
    """Create the topic unless it is there; errors that may pass are raised, others told.

    As in MirrorMaker 2 it is no error if we may not: somebody else may have made the topic, or may still do so.
    """
    cluster.refresh([topic])
    if topic in cluster.topics:
        return
    new = NewTopic(topic, 1, factor, {"cleanup.policy": "compact"})
    for error in metadata.create(cluster, [new], may_lower_factor=may_lower_factor).values():
        if error.retriable or error.code == messages.NOT_CONTROLLER:
            raise error
        log.warning("%s Create the topic yourself, compacted and with one partition.", error)
