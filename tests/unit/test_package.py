"""What the package says of itself."""

from __future__ import annotations

import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_dependency_has_an_upper_bound() -> None:
    """A new major version may mean anything."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    assert [each for each in wanted if "<" not in each] == []


def test_the_package_is_typed_for_those_who_use_it() -> None:
    assert (ROOT / "src/sparkmirror/py.typed").is_file()
