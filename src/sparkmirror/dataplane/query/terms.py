"""What is asked of records: the keys of a query in, its terms out, and back as text that a position keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

SQL: Final = "transform.sql"
FUNCTIONS: Final = "transform.functions"
NONDETERMINISTIC: Final = "transform.nondeterministic"
KEYS: Final = frozenset({SQL, FUNCTIONS, NONDETERMINISTIC})


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """A query with all that decides what comes out of it."""

    sql: str
    functions: tuple[str, ...] = ()
    """`package.module:name` each."""
    may_vary: bool = False
    """Whether it may give another answer to the same record."""

    @property
    def fields(self) -> dict[str, str]:
        found = {SQL: self.sql}
        if self.functions:
            found[FUNCTIONS] = ",".join(self.functions)
        if self.may_vary:
            found[NONDETERMINISTIC] = "allow"
        return found

    @property
    def text(self) -> str:
        return json.dumps(self.fields, sort_keys=True, separators=(",", ":"))

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self | None:
        """The terms whose `fields` are among these; None without a query."""
        sql = fields.get(SQL)
        if sql is None:
            return None
        functions = tuple(filter(None, str(fields.get(FUNCTIONS, "")).split(",")))
        return cls(str(sql), functions, fields.get(NONDETERMINISTIC) == "allow")


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """How a query is run; nothing of it changes what comes out."""

    interval: float = 0.3
    """Seconds from the beginning of one job to that of the next, if not more is waiting than one takes."""
    patience: float = 60.0
    """Seconds that one job may take."""
    memory: int = 512 << 20
    """Bytes that a function may take on top of what its process has."""


@dataclass(frozen=True, slots=True)
class BadRecords:
    """What is done with a record on which the query raises: Connect's `errors.*` keys."""

    are_tolerated: bool = False
    dead_letters: str = ""
    """The topic on the target that they are written to; empty: none."""
    with_context: bool = False
    """Whether those tell in headers where they come from and what was wrong."""
    are_logged: bool = False
    are_logged_in_full: bool = False
    factor: int = 3
    """Replication factor of the topic of dead letters, if it has to be created."""
    may_lower_factor: bool = True


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """The query of a flow, and all that is needed to run it."""

    terms: QueryTerms
    limits: QueryLimits
