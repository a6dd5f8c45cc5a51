"""The connectors of a pair as a file has them (dedicated mode): what is stored in, what is to be written out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Configs = Mapping[str, Mapping[str, str]]
"""The configs of connectors by name."""


@dataclass(frozen=True, slots=True)
class FileConnectors:
    wanted: Configs
    disabled: Configs
    """Those that the file does not ask for, with `enabled=false`. One may be stored from a time when it did, and would run on."""

    def to_write(self, stored: Configs) -> Configs:
        """What differs from the stored configs. Nothing is ever removed, as in MirrorMaker 2."""
        due = {
            **self.wanted,
            **{name: self.disabled[name] for name in self.disabled if name in stored},
        }
        return {name: props for name, props in due.items() if stored.get(name) != props}
