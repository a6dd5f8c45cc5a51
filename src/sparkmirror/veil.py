"""Secrets that must not be read by others: properties come in, and texts; the texts without the secrets go out.

The first rule is that no message quotes a secret. This is the second: what somebody else says (a library, a broker, Spark, a
user's class) passes here before it is logged, shown in a status or sent as an answer, and every secret that this process knows
is replaced. Secrets shorter than eight characters are not looked for: they would be found in ordinary words.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping

from sparkmirror.secret_names import HIDDEN, secrets_in


class Veil:
    """What this process knows to be secret. Any thread may learn and hide.

    Invariant: what was learned is hidden until the process ends: an old password may still be somebody's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def learn(self, properties: Mapping[str, str]) -> None:
        """Hide the secrets among these properties from now on."""
        self._add(secrets_in(properties))

    def _add(self, secrets: Iterable[str]) -> None:
        with self._lock:
            known = self._known.union(secrets)
            if known == self._known:
                return
            # Longer ones first: one secret may be the beginning of another.
            longest_first = sorted(known, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))
            self._known = known

    def hide(self, text: str) -> str:
        """The text with `[hidden]` in the place of every secret that is known."""
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)


VEIL = Veil()
"""Secrets belong to the process, like its log."""
