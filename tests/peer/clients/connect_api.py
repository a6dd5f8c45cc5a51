"""The story through PyPI's kafka-connect-api."""

from __future__ import annotations

from kafka_connect_api.kafka_connect_api import (  # type: ignore[import-not-found]
    Api,
    Cluster,
    Connector,
)
from story import given, tell

told = given()
cluster = Cluster(Api(url=told.url))
connector = Connector(cluster, told.name)
absent = Connector(cluster, "absent")
whole = {"name": told.name, "config": told.config}


def put(config: dict[str, str]) -> None:
    connector.config = config


tell(
    {
        "root": lambda: [cluster.version, cluster.kafka_cluster],
        "list": lambda: list(cluster.connectors),
        "plugins": lambda: cluster.api.get("/connector-plugins"),
        "absent": absent.exists,
        "absent status": lambda: absent.status,
        "create wrong": lambda: cluster.api.post(
            "/connectors", json={"name": told.name, "config": told.wrong}
        ),
        "create": lambda: cluster.api.post("/connectors", json=whole),
        "create again": lambda: cluster.api.post("/connectors", json=whole),
        "get": connector.exists,
        "config": lambda: [connector.config, connector.connector_class],
        "status": lambda: [connector.status, connector.state],
        "tasks": lambda: [[task.id, task.config, task.state] for task in connector.tasks],
        "task status": lambda: connector.tasks[0].status,
        "restart task": connector.restart_all_tasks,
        "pause": connector.pause,
        "resume": connector.resume,
        "restart": connector.restart,
        "update": lambda: put(told.update),
        # Which level it has is the matter of a worker's settings.
        "logger": lambda: sorted(cluster.root_logger),
        "delete": connector.delete,
    },
    told,
)
