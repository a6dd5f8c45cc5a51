"""What helps a person around the replicator: clusters to try it on, and the demo."""
