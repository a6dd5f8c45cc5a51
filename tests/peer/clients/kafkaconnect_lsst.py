"""The story through PyPI's kafkaconnect."""

from __future__ import annotations

import json

from kafkaconnect.connect import Connect  # type: ignore[import-not-found]
from story import given, tell

told = given()
client = Connect(told.url)
name, config = told.name, json.dumps({**told.config, "name": told.name})
plugin = "MirrorHeartbeatConnector"
tell(
    {
        "list": client.list,
        "plugins": client.plugins,
        "validate": lambda: client.validate(plugin, config),
        "validate wrong": lambda: client.validate(plugin, json.dumps(told.wrong)),
        "absent": lambda: client.info("absent"),
        "absent status": lambda: client.status("absent"),
        "create wrong": lambda: client.create_or_update(name, json.dumps(told.wrong)),
        "create": lambda: client.validate_and_create(name, config),
        "get": lambda: client.info(name),
        "config": lambda: client.config(name),
        "status": lambda: client.status(name),
        "tasks": lambda: client.tasks(name),
        "pause": lambda: client.pause(name),
        "resume": lambda: client.resume(name),
        "restart": lambda: client.restart(name),
        "update": lambda: client.create_or_update(name, json.dumps(told.update)),
        "delete": lambda: client.remove(name),
    },
    told,
)
