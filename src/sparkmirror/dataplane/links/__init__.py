"""Connections between the driver, its copy tasks and the tasks of queries."""
