"""The bytes of the records that MirrorMaker 2 and Connect keep in Kafka."""
