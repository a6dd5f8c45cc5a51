"""The hand-kept description names exactly what is served."""

from __future__ import annotations

import json
from pathlib import Path

import sparkmirror.control.rest.openapi as openapi
from sparkmirror.control.loggers import Loggers
from sparkmirror.control.rest.admin import Admin
from sparkmirror.control.rest.connectors import Connectors
from sparkmirror.control.rest.internal import Internal
from sparkmirror.control.rest.metrics import Metrics
from sparkmirror.control.rest.plugins import ConnectorPlugins
from sparkmirror.control.rest.root import Root
from sparkmirror.control.rest.status_page import StatusPage
from tests.unit.control.rest_herder import MemoryHerder, MemoryPlugins


def test_every_endpoint_is_described_and_no_other() -> None:
    herder = MemoryHerder()
    served = {
        (route.path, route.method.lower())
        for routes in (
            Root(herder).routes(),
            Connectors(herder).routes(),
            Internal(lambda call: herder).routes(),
            ConnectorPlugins(MemoryPlugins()).routes(),
            Admin(herder, Loggers()).routes(),
            openapi.OpenApi().routes(),
            Metrics(herder, "w:1").routes(),
            StatusPage(herder, "w:1").routes(),
        )
        for route in routes
    }
    document = json.loads(Path(openapi.__file__).with_name("openapi.json").read_text())
    described = {
        (path, method)
        for path, methods in document["paths"].items()
        for method in methods
        if method != "parameters"
    }
    assert described == served - {("/docs", "get")}


def test_every_reference_leads_somewhere() -> None:
    text = Path(openapi.__file__).with_name("openapi.json").read_text()
    document = json.loads(text)
    references = {part.split('"')[0] for part in text.split('"$ref": "#/')[1:]}
    assert references
    for reference in references:
        found = document
        for part in reference.split("/"):
            found = found[part]


def test_parameters_of_paths_are_declared() -> None:
    document = json.loads(Path(openapi.__file__).with_name("openapi.json").read_text())
    for path, methods in document["paths"].items():
        wanted = {part[1:-1] for part in path.split("/") if part.startswith("{")}
        assert {each["name"] for each in methods.get("parameters", ())} == wanted
