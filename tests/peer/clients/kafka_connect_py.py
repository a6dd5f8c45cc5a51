"""The story through PyPI's kafka-connect-py."""

from __future__ import annotations

from kafka_connect import KafkaConnect  # type: ignore[import-not-found]
from story import given, tell

told = given()
client = KafkaConnect(told.url)
name, config = told.name, told.config
whole = {"name": name, "config": config}
plugin = "MirrorHeartbeatConnector"
tell(
    {
        "root": client.get_cluster_info,
        "list": client.list_connectors,
        "expand": lambda: client.list_connectors(expand="status"),
        "plugins": client.list_connector_plugins,
        "validate": lambda: client.validate_connector_config(plugin, config),
        "validate wrong": lambda: client.validate_connector_config(plugin, told.wrong),
        "absent": lambda: client.get_connector("absent"),
        "absent status": lambda: client.get_connector_status("absent"),
        "create wrong": lambda: client.create_connector({"name": name, "config": told.wrong}),
        "create": lambda: client.create_connector(whole),
        "create again": lambda: client.create_connector(whole),
        "get": lambda: client.get_connector(name),
        "config": lambda: client.get_connector_config(name),
        "status": lambda: client.get_connector_status(name),
        "tasks": lambda: client.list_connector_tasks(name),
        "task status": lambda: client.get_connector_task_status(name, 0),
        "restart task": lambda: client.restart_connector_task(name, 0),
        "pause": lambda: client.pause_connector(name),
        "resume": lambda: client.resume_connector(name),
        "restart": lambda: client.restart_connector(name),
        "restart all": lambda: client.restart_connector(name, include_tasks=True),
        "update": lambda: client.update_connector(name, told.update),
        "stop": lambda: client.stop_connector(name),
        "reset topics": lambda: client.reset_connector_topics(name),
        "topics": lambda: client.list_connector_topics(name),
        "delete": lambda: client.delete_connector(name),
    },
    told,
)
