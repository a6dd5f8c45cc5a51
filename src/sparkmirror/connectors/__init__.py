"""What MM2 calls connectors: which topics, which tasks."""
