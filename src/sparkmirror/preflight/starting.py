"""The cheap part of the check, for connectors that have just started: clusters that are connected already in, log lines out.

A few requests, however many topics there are, and never an error of its own: a start does not depend on it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sparkmirror.config.keys import parse_boolean
from sparkmirror.errors import KafkaError
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.preflight.facts import ClusterFacts
from sparkmirror.preflight.findings import Level
from sparkmirror.preflight.flow import Flow
from sparkmirror.preflight.flow_check import Depth, FlowCheck
from sparkmirror.preflight.privileges import Side
from sparkmirror.preflight.probing import Deadline, Seen

log = logging.getLogger(__name__)
ENABLED = "preflight.enabled"
_SECONDS = 20.0
_DEPTH = Depth(topics=200, groups=3, ages=False)
# What says only that a cluster did not answer is for those to tell who need the answer.
_NOT_TOLD = ("kafka", "time")


def is_wanted(props: Mapping[str, str]) -> bool:
    return parse_boolean(props.get(ENABLED, "true")) is not False


def tell_findings(flow: Flow, clusters: Mapping[Side, Cluster], label: str) -> None:
    """Log what is wrong, once; topics to be copied are those of each cluster's last refresh."""
    try:
        for side, cluster in clusters.items():  # also what was created a moment ago
            cluster.refresh(sorted(flow.own_topics(side)))
        seen = {
            side: Seen(ClusterFacts(cluster.settings.alias, (), (), cluster.cluster_id()), cluster)
            for side, cluster in clusters.items()
        }
        check = FlowCheck(flow, seen, Deadline(_SECONDS), _DEPTH)
        check.plan()
        findings = check.findings()
    except KafkaError as error:
        log.info("%s was not checked: %s", label, error)
        return
    for finding in findings:
        if finding.check not in _NOT_TOLD and finding.level >= Level.WARNING:
            level = logging.ERROR if finding.level is Level.ERROR else logging.WARNING
            log.log(level, "%s: %s", label, finding)
