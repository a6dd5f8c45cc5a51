"""Secrets planted in a run, and where they turn up: texts of many places come in, what was found where goes out."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

_MOST_BYTES = 64 << 20


class Planted:
    """Secrets by name, each unlike any other text; and one `control`, which must be found in every kind of place."""

    def __init__(self) -> None:
        self.control = f"control-{uuid.uuid4().hex}"
        self._secrets: dict[str, str] = {}
        self._forms: dict[bytes, str] = {}
        self._found: dict[str, set[str]] = defaultdict(set)
        self._controlled: set[str] = set()
        self._lock = threading.Lock()

    def secret(self, name: str) -> str:
        """A new secret."""
        made = f"planted.{name}.{uuid.uuid4().hex}"
        self.plant(name, made)
        return made

    def plant(self, name: str, secret: str) -> None:
        """Look for this one, too, also as it is sent in headers and addresses."""
        encoded = base64.b64encode(secret.encode()).decode()
        for form in (secret, quote(secret), encoded):
            self._forms[form.encode()] = name
        self._secrets[name] = secret

    def __getitem__(self, name: str) -> str:
        return self._secrets[name]

    def look(self, kind: str, where: str, text: bytes) -> None:
        """Search one place of a kind."""
        found = {name for form, name in self._forms.items() if form in text}
        with self._lock:
            if self.control.encode() in text:
                self._controlled.add(kind)
            for name in found:
                self._found[name].add(f"{kind}: {where}")

    def look_into(
        self, kind: str, directory: Path, leave_out: re.Pattern[str] | None = None
    ) -> None:
        """Search every file below a directory, also such as are gone a moment later; not those with such a path."""
        for parent, _, names in os.walk(directory):  # goes on where a directory is gone meanwhile
            for file in (Path(parent, name) for name in names):
                path = file.relative_to(directory).as_posix()
                if leave_out is not None and leave_out.fullmatch(path):
                    continue
                with contextlib.suppress(OSError):
                    if file.is_file() and file.stat().st_size < _MOST_BYTES:
                        self.look(kind, str(file), str(file).encode() + b"\n" + file.read_bytes())

    def check(self, kinds: Iterable[str]) -> None:
        """No secret was found, while the control was in each of these kinds of places: they were searched."""
        assert not self._found, {name: sorted(where) for name, where in self._found.items()}
        assert self._controlled == set(kinds)
