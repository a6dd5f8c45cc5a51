"""What is done with the records of a partition on their way: a plan and settings in, transforms and placement out.

Kept as text with the position, so that whoever resumes it knows what was done with the records that were written since.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from sparkmirror.errors import ConfigError
from sparkmirror.formats import java_json
from sparkmirror.transforms.chain import TransformChain

from .plan import CopySettings, PartitionPlan
from .query.terms import KEYS, NONDETERMINISTIC, SQL, QueryTerms

_PLACES = "target.partitions"
_WIDTH = "transform.partitions"


@dataclass(frozen=True, slots=True)
class Shape:
    """What records pass through, and on how many partitions they are placed."""

    chain: TransformChain | None = None
    """The transforms that touch them."""
    places: int = 0
    """The number of partitions of the target on which records are placed by their keys; 0: they stay in their own."""
    query: QueryTerms | None = None
    """What they pass through behind the transforms."""
    width: int = 0
    """The number of partitions on which records are placed that the query gives none."""

    @classmethod
    def of(cls, part: PartitionPlan, settings: CopySettings) -> Shape:
        """What is to be done by the plan."""
        chain = settings.transforms
        touches = chain is not None and chain.on(part.remote) is not None
        asked = settings.query is not None and part.queried
        return cls(
            chain if touches else None,
            part.places,
            settings.query.terms if settings.query is not None and asked else None,
            part.width if asked else 0,
        )

    @classmethod
    def read(cls, text: str) -> Shape:
        """The shape whose `text` this is; ConfigError if it cannot be read."""
        try:
            fields: dict[str, Any] = dict(java_json.decode(text))
            places, width = int(fields.pop(_PLACES, 0)), int(fields.pop(_WIDTH, 0))
            query = QueryTerms.read(fields)
            text = _joined({name: fields[name] for name in fields if name not in KEYS})
        except (ValueError, TypeError) as error:
            raise ConfigError(f"A recorded chain of transforms cannot be read: {error}.") from None
        return cls(TransformChain.read(text), places, query, width)

    @property
    def is_plain(self) -> bool:
        """Whether records stay as and where they are, so that whole batches are copied."""
        return self.chain is None and not self.places and self.query is None

    @property
    def text(self) -> str | None:
        """What a position keeps of it; None if it is plain."""
        chain = None if self.chain is None else self.chain.text
        own: dict[str, str] = {}
        if self.places:
            own[_PLACES] = str(self.places)
        if self.query is not None:
            own |= {**self.query.fields, _WIDTH: str(self.width)}
        return _joined({**java_json.decode(chain or "{}"), **own}) if own else chain

    @property
    def what(self) -> str | None:
        """What is done with records, as text, whatever partitions they are placed on; None if nothing is."""
        return replace(self, places=0, width=0).text


def _joined(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def has_query(text: str | None) -> bool:
    """Whether the shape whose text this is has a query, without reading it: once a second for every partition."""
    return text is not None and f'"{SQL}":' in text


def may_vary(text: str | None) -> bool:
    """Whether the query of a shape may give another answer to the same record."""
    return has_query(text) and f'"{NONDETERMINISTIC}":' in str(text)


PLAIN = Shape()
