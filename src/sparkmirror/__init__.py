"""sparkmirror: Kafka topics from one cluster to another, exactly once, on Spark."""
