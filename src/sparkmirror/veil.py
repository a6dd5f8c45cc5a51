"""Secrets that must not be read by others: properties come in, and texts; the texts without the secrets go out.

The first rule is that no message quotes a secret. This is the second: what somebody else says (a library, a broker, Spark, a
user's class) passes here before it is logged, shown in a status or sent as an answer, and every secret that this process knows
is replaced. Secrets shorter than eight characters are not looked for: they would be found in ordinary words. One that may be an
ordinary word itself, as `password` is the password of many, is hidden where it stands as a value: hidden everywhere, the gap in a
sentence that everybody knows would give it away.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping

from sparkmirror.secret_names import HIDDEN, SECRET_WORDS, secrets_in

_WORD = re.compile("[A-Za-z]{,12}")
_BEFORE_A_VALUE = (
    r"(=\s*[\"']?"  # name=word, name = "word"
    r"|:\s*[\"']|:(?=\S)"  # 'name': 'word', user:word@host
    rf"|(?:{'|'.join(SECRET_WORDS)})\w{{,32}}[\"']?[\s:]\s*[\"']?)"  # password word, passphrase: word
)


def _finding(secrets: frozenset[str]) -> re.Pattern[str]:
    """What finds any of these; before one that may be a word, group 1 is what shows that it is a value."""
    longest_first = sorted(secrets, key=len, reverse=True)  # one may be the beginning of another
    ways = [re.escape(each) for each in longest_first if not _WORD.fullmatch(each)]
    words = [each for each in longest_first if _WORD.fullmatch(each)]
    if words:
        ways.append(rf"{_BEFORE_A_VALUE}(?:{'|'.join(words)})(?!\w)")
    return re.compile("|".join(ways))


def _hidden(found: re.Match[str]) -> str:
    return (found[1] or "") + HIDDEN if found.re.groups else HIDDEN


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
            self._pattern = _finding(known)
            self._known = known

    def hide(self, text: str) -> str:
        """The text with `[hidden]` in the place of every secret that is known."""
        return text if self._pattern is None else self._pattern.sub(_hidden, text)


VEIL = Veil()
"""Secrets belong to the process, like its log."""
