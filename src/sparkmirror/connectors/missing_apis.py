"""APIs that a cluster does not offer and a connector can do without: said once, when the connector starts."""

from __future__ import annotations

import logging

from sparkmirror.kafka.api_versions import Side, losses
from sparkmirror.kafka.cluster import Cluster

log = logging.getLogger(__name__)


def tell_missing(label: str, cluster: Cluster, side: Side) -> None:
    """Log what is lost by each of them."""
    offered = cluster.any_connection().versions
    for lost in losses(offered, [side]):
        if lost.is_missing:
            said = lost.api.is_offered(offered)
            log.warning("%s: %s %s: %s.", label, cluster.settings, said, lost.lack.what)
