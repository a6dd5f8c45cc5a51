"""sparkmirror measured beside MirrorMaker 2 on the same brokers and the same data."""
