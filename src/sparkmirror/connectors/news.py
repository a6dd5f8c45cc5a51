"""What was told already: things and what there is to say of each in, whether that is new out."""

from __future__ import annotations

from collections.abc import Collection


class News:
    """Remembers the last word on each thing, so that a log tells changes and not every round.

    Invariant: a thing that a round did not mention is forgotten; the same word about it is news again.
    """

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def is_new(self, thing: str, word: str) -> bool:
        """Whether this was not the last word on it; it is from now on."""
        if self._last.get(thing) == word:
            return False
        self._last[thing] = word
        return True

    def keep(self, mentioned: Collection[str]) -> None:
        """End of a round: forget what is over."""
        self._last = {thing: word for thing, word in self._last.items() if thing in mentioned}

    def over(self, thing: str) -> None:
        """There is nothing to say of it any more."""
        self._last.pop(thing, None)
