"""The files of a scenario as its user has them: addresses come in, a folder with the files that name them goes out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).with_name("scenarios")


class ScenarioFiles:
    """A copy of one scenario's folder, unchanged but for addresses: each of `addresses` must occur in it."""

    def __init__(self, name: str, directory: Path, addresses: Mapping[str, str]) -> None:
        self.folder = directory / name
        found: set[str] = set()
        for file in sorted(path for path in (_FOLDER / name).rglob("*") if path.is_file()):
            text = file.read_text()
            for written, real in addresses.items():
                if written in text:
                    found.add(written)
                    text = text.replace(written, real)
            copy = self.folder / file.relative_to(_FOLDER / name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)
        assert found == set(addresses), f"not in the files: {set(addresses) - found}"

    def path(self, name: str) -> Path:
        return self.folder / name

    def document(self, name: str) -> Any:
        """A JSON file's content."""
        return json.loads(self.path(name).read_text())

    def environment(self, name: str) -> dict[str, str]:
        """A file of variables: whatever follows the equals sign is the value, quotes included."""
        lines = self.path(name).read_text().splitlines()
        pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
        return {variable: value for variable, _, value in pairs}
