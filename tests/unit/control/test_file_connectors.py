"""Connectors as a file has them: what of it is written over what is stored."""

from __future__ import annotations

from sparkmirror.control.file_connectors import FileConnectors

ON = {"name": "source", "enabled": "true"}
OFF = {"name": "source", "enabled": "false"}
HEARTBEAT = {"name": "heartbeat", "enabled": "false"}


def test_what_is_wanted_is_written_unless_it_is_stored_so() -> None:
    file = FileConnectors({"source": ON, "heartbeat": HEARTBEAT}, {})
    assert file.to_write({}) == {"source": ON, "heartbeat": HEARTBEAT}
    assert file.to_write({"source": OFF, "heartbeat": HEARTBEAT}) == {"source": ON}
    assert file.to_write({"source": ON, "heartbeat": HEARTBEAT}) == {}


def test_a_connector_of_a_flow_that_is_not_enabled_any_more_is_disabled() -> None:
    file = FileConnectors({"heartbeat": HEARTBEAT}, {"source": OFF})
    assert file.to_write({"source": ON, "heartbeat": HEARTBEAT}) == {"source": OFF}


def test_one_that_was_never_there_is_not_created_to_be_disabled() -> None:
    file = FileConnectors({"heartbeat": HEARTBEAT}, {"source": OFF})
    assert file.to_write({"heartbeat": HEARTBEAT}) == {}
    assert file.to_write({"heartbeat": HEARTBEAT, "source": OFF}) == {}


def test_connectors_that_the_file_knows_nothing_of_are_left_alone() -> None:
    file = FileConnectors({"source": ON}, {})
    assert file.to_write({"source": ON, "other": {"enabled": "true"}}) == {}
