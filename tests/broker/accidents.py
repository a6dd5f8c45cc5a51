"""What happens to running clusters while records flow."""

from __future__ import annotations

import random

from sparkmirror.tools.clusters import KafkaCluster


def restart_broker(cluster: KafkaCluster, rng: random.Random) -> None:
    """Any broker, killed or stopped, and started again."""
    node = rng.choice(list(cluster.nodes))
    if rng.random() < 0.5:
        cluster.kill(node)
    else:
        cluster.stop(node)
    cluster.restart(node)
