"""Getting into a cluster: Java client properties in, connections that brokers let in out."""
