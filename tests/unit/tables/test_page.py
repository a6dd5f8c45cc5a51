"""The page of the tables in docs/: its columns are those that the tables have."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from sparkmirror.tables.source import TABLES

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "tables.md"


@pytest.mark.parametrize("table", TABLES)
def test_the_page_has_the_columns_of_a_table(table: str) -> None:
    (section,) = re.findall(
        rf"^### {table}$(.*?)(?:^##|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    found = re.findall(r"^\| `(\w+)` \| ([A-Z]+) \| .+ \|$", section, re.MULTILINE)
    assert found == list(import_module(f"sparkmirror.tables.{table}").COLUMNS)
