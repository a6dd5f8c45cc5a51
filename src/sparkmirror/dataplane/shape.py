"""What is done with the records of a partition on their way: a plan and settings in, transforms and placement out.

Kept as text with the position, so that whoever resumes it knows what was done with the records that were written since.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sparkmirror.errors import ConfigError
from sparkmirror.transforms.chain import TransformChain

from .plan import CopySettings, PartitionPlan

_PLACES = "target.partitions"


@dataclass(frozen=True, slots=True)
class Shape:
    """What records pass through, and on how many partitions they are placed."""

    chain: TransformChain | None = None
    """The transforms that touch them."""
    places: int = 0
    """The number of partitions of the target on which records are placed by their keys; 0: they stay in their own."""

    @classmethod
    def of(cls, part: PartitionPlan, settings: CopySettings) -> Shape:
        """What is to be done by the plan."""
        chain = settings.transforms
        touches = chain is not None and chain.on(part.remote) is not None
        return cls(chain if touches else None, part.places)

    @classmethod
    def read(cls, text: str) -> Shape:
        """The shape whose `text` this is; ConfigError if it cannot be read."""
        places = 0
        try:
            fields: dict[str, Any] = dict(json.loads(text))
            if _PLACES in fields:
                places = int(fields.pop(_PLACES))
                text = _joined(fields)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"A recorded chain of transforms cannot be read: {error}.") from None
        return cls(TransformChain.read(text), places)

    @property
    def is_plain(self) -> bool:
        """Whether records stay as and where they are, so that whole batches are copied."""
        return self.chain is None and not self.places

    @property
    def text(self) -> str | None:
        """What a position keeps of it; None if it is plain."""
        chain = None if self.chain is None else self.chain.text
        if not self.places:
            return chain
        return _joined({**json.loads(chain or "{}"), _PLACES: str(self.places)})


def _joined(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


PLAIN = Shape()
