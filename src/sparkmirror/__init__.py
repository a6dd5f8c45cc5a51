"""sparkmirror: Kafka topics from one cluster to another, exactly once, on Spark."""

from sparkmirror.embedding import RunningMirror, start

__all__ = ["RunningMirror", "start"]
