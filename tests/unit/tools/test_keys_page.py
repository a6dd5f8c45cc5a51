"""The reference page of keys in docs/."""

from __future__ import annotations

from sparkmirror.config.definitions import CHECKPOINT_KEYS, HEARTBEAT_KEYS, SOURCE_KEYS
from sparkmirror.config.keys_worker import DISTRIBUTED_KEYS, STANDALONE_KEYS
from sparkmirror.config.plugins import PREDICATES, TRANSFORMATIONS
from sparkmirror.tools.keys_page import PAGE, keys_page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == keys_page(), (
        "run python -m sparkmirror.tools.keys_page"
    )


def test_the_page_names_every_key() -> None:
    page = keys_page()
    tables = (SOURCE_KEYS, CHECKPOINT_KEYS, HEARTBEAT_KEYS, DISTRIBUTED_KEYS, STANDALONE_KEYS)
    names = {key.name for table in tables for key in table}
    names |= {key.name for plugin in (*TRANSFORMATIONS, *PREDICATES) for key in plugin.keys}
    assert [name for name in names if f"| `{name}` |" not in page] == []


def test_differing_defaults_are_shown_with_kafkas() -> None:
    page = keys_page()
    for ours, kafkas in (("30", "600"), ("5", "60"), ("1000", "60000")):
        assert f"`{ours}` (Kafka: `{kafkas}`)" in page
