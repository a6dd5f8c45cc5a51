"""Connector files: properties, or JSON as it is sent to a worker; a path comes in, a connector config goes out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparkmirror.config.properties import read_properties
from sparkmirror.errors import ConfigError


def read_connector(path: Path) -> dict[str, str]:
    """The config in a file: properties, a JSON object of keys and values, or one with `name` and `config` as POST takes it."""
    if path.suffix.lower() != ".json":
        return read_properties(path)
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}.", "Check the path and its permissions."
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}.", "Correct the file.") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds no JSON object.", "Write keys and values in braces.")
    config = document.get("config")
    if isinstance(config, Mapping):
        return {"name": _text(document.get("name", path.stem)), **_texts(config)}
    return _texts(document)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: _text(value) for key, value in values.items()}


def _text(value: Any) -> str:
    """Values that are not strings are taken as their JSON text, as over REST."""
    return value if isinstance(value, str) else json.dumps(value)
