"""The plugins that are known, their names, versions and keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.config.plugins import (
    PLUGINS,
    PluginType,
    find_plugin,
    kind_problem,
    list_plugins,
    plugin_definitions,
)
from sparkmirror.config.versions import VERSION, check_version, version_problem
from sparkmirror.errors import BadRequest, NotFound

MIRROR = "org.apache.kafka.connect.mirror"


def test_connectors_are_listed_first_and_alone_unless_asked() -> None:
    connectors = list_plugins()
    assert connectors == [
        {"class": f"{MIRROR}.Mirror{name}Connector", "type": "source", "version": "4.3.1"}
        for name in ("Checkpoint", "Heartbeat", "Source")
    ]
    everything = list_plugins(connectors_only=False)
    assert everything[:3] == connectors
    types = [entry["type"] for entry in everything]
    assert [*dict.fromkeys(types)] == [str(plugin_type) for plugin_type in PluginType]
    assert (types.count("transformation"), types.count("predicate")) == (5, 3)


@pytest.mark.parametrize("name", [f"{MIRROR}.MirrorSourceConnector", "MirrorSource"])
def test_a_plugin_goes_by_several_names(name: str) -> None:
    plugin = find_plugin(name)
    assert plugin is not None
    assert plugin.simple_name == "MirrorSourceConnector"


def test_short_names_are_never_empty_and_name_one_class() -> None:
    for plugin in PLUGINS:
        for alias in plugin.aliases:
            found = find_plugin(alias)
            assert alias
            assert found is not None
            assert found.class_name == plugin.class_name


def test_classes_of_another_kind() -> None:
    bytes_converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
    assert kind_problem(bytes_converter, PluginType.CONVERTER) is None
    assert kind_problem(bytes_converter, PluginType.HEADER_CONVERTER) is None
    assert kind_problem(bytes_converter, PluginType.PREDICATE) == (
        f"Class class {bytes_converter} does not implement the Predicate interface"
    )
    cast = kind_problem("org.apache.kafka.connect.transforms.Cast", PluginType.TRANSFORMATION)
    assert cast is not None
    assert cast.endswith("Cast$Key, org.apache.kafka.connect.transforms.Cast$Value?")


def test_definitions_of_connectors_end_with_the_frameworks() -> None:
    keys = plugin_definitions("MirrorHeartbeat")
    assert len(keys) == 102
    assert [key["name"] for key in keys[-5:]] == [
        "topic.creation.groups",
        "exactly.once.support",
        "transaction.boundary",
        "transaction.boundary.interval.ms",
        "offsets.storage.topic",
    ]
    assert [*keys[0]] == [
        "name",
        "type",
        "required",
        "default_value",
        "importance",
        "documentation",
        "group",
        "order_in_group",
        "width",
        "display_name",
        "dependents",
    ]


def test_our_defaults_are_shown() -> None:
    source = {key["name"]: key["default_value"] for key in plugin_definitions("MirrorSource")}
    checkpoint = {k["name"]: k["default_value"] for k in plugin_definitions("MirrorCheckpoint")}
    assert source["refresh.topics.interval.seconds"] == "30"
    assert checkpoint["emit.checkpoints.interval.seconds"] == "5"


def test_unknown_plugins_and_versions() -> None:
    with pytest.raises(NotFound, match=r"Unknown plugin Nope\."):
        plugin_definitions("Nope")
    with pytest.raises(BadRequest, match="not found that matches the version range"):
        plugin_definitions("MirrorSource", "3.9.1")
    with pytest.raises(BadRequest, match="Invalid version specification: "):
        plugin_definitions("MirrorSource", "[")
    assert plugin_definitions("Filter", "latest") == []


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (None, True),
        ("LATEST", True),
        (" 4.3.1 ", True),
        ("[4.3.1]", True),
        ("[4,5)", True),
        ("(4.3.1,)", False),
        ("(,4.3.1)", False),
        ("[1,2),[4.3,)", True),
        ("[4.3.2-rc1,)", False),
        ("[4.3.1.0,)", True),
        ("", False),
        ("4.3", False),
    ],
)
def test_versions(wanted: str | None, fits: bool) -> None:
    assert (version_problem("X", wanted) is None) == fits


@pytest.mark.parametrize("wanted", ["[", "(1)", "[2,1]", "[1,2]x", "1)", "[1,2", "[1,1)"])
def test_what_is_no_version(wanted: str) -> None:
    assert check_version("k", wanted) is not None


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_ranges_hold_what_lies_between(major: int, minor: int, patch: int) -> None:
    version = f"{major}.{minor}.{patch}"
    older = (major, minor, patch) <= (4, 3, 1)
    assert (version_problem("X", f"[{version},)") is None) == older
    assert (version_problem("X", f"(,{version})") is None) == (not older)
    assert (version_problem("X", version) is None) == (version == VERSION)
