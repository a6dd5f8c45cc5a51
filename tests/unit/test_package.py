"""What the package says of itself."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from itertools import chain
from pathlib import Path

from sparkmirror.tools import pack

_LICENSE = ("License-Expression", "License", "Classifier")
ROOT = Path(__file__).parents[2]


def test_every_dependency_has_an_upper_bound() -> None:
    """A new major version may mean anything."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    assert [each for each in wanted if "<" not in each] == []


def test_the_package_is_typed_for_those_who_use_it() -> None:
    assert (ROOT / "src/sparkmirror/py.typed").is_file()


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))


def test_what_is_tested_is_what_runs() -> None:
    run, develop = pins("requirements.lock"), pins("requirements-dev.lock")
    assert {name: develop.get(name) for name in run} == run
    assert {"pyspark", "aiokafka"} <= run.keys() < develop.keys()
    assert "pytest" not in run


def test_every_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[<>=]", each)[0] for each in project["dependencies"]}
    assert wanted - pins("requirements.lock").keys() == set()


def licenses(name: str) -> str:
    """What a package says of its license, or the text itself."""
    found = importlib.metadata.distribution(name)
    said = [value for key in _LICENSE for value in found.metadata.get_all(key) or ()]
    declared = [each for each in said if "License" in each or "::" not in each]
    files = [file for file in found.files or () if "LICENSE" in file.name.upper()]
    return " ".join(declared) or " ".join(file.read_text() for file in files)


def test_nothing_that_runs_has_a_copyleft_license() -> None:
    for name in pack._needed("sparkmirror"):
        said = licenses(name)
        assert said, name
        assert re.search(r"\b[AL]?GPL|General Public", said) is None, (name, said[:200])
