"""Which offsets a person may set: a partition and an offset of one kind of connector in, an error that says what is wrong out.

The errors read as those of a Java worker, whose users have scripts that look at them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sparkmirror.errors import ConnectError
from sparkmirror.formats.java_json import double_text, hash_ordered

from .herding import SourceOffset, SourcePartition

__all__ = ["ConnectorKind", "SourceOffset", "SourcePartition", "check"]

ConnectorKind = Literal["source", "checkpoint", "heartbeat"]
_TEXTS: Mapping[ConnectorKind, tuple[str, ...]] = {
    "source": ("cluster", "topic"),
    "checkpoint": ("group", "topic"),
    "heartbeat": ("sourceClusterAlias", "targetClusterAlias"),
}
_MAX_INT = 0x7FFFFFFF
_MAX_LONG = (1 << 63) - 1


def check(kind: ConnectorKind, partition: SourcePartition | None, offset: SourceOffset) -> None:
    """ConnectError if a connector of this kind cannot have this offset. To take one away is always allowed."""
    for fields in (partition, offset):
        _check_flat(fields or {})
    if offset is not None:
        if partition is None:
            raise ConnectError("Source partitions may not be null")
        for field in _TEXTS[kind]:
            _check_text(partition, field)
        if kind != "heartbeat":
            _check_partition(partition)
        _check_offset(kind, partition, offset)


def _check_text(partition: SourcePartition, field: str) -> None:
    what = f"Source partition {shown(partition)}"
    value = _value(partition, field, what)
    if not isinstance(value, str):
        raise _invalid(what, value, field, ", which must be a string")


def _check_partition(partition: SourcePartition) -> None:
    what, field = f"Source partition {shown(partition)}", "partition"
    number = _value(partition, field, what)
    if not _is_integer(number) or number > _MAX_INT:
        raise _invalid(what, number, field, ", which must be an integer")
    if number < 0:
        raise _invalid(what, number, field, ", which cannot be negative")


def _check_offset(
    kind: ConnectorKind, partition: SourcePartition, offset: Mapping[str, Any]
) -> None:
    what, field = f"Source offset {shown(offset)} for source partition {shown(partition)}", "offset"
    number = _value(offset, field, what)
    if not _is_integer(number) or number > _MAX_LONG:
        raise _invalid(what, number, field, ", which must be an integer")
    if kind != "source" and number != 0:
        raise _invalid(what, number, field, "; the only accepted value is 0")
    if number < 0:
        raise _invalid(what, number, field, ", which cannot be negative")


def _check_flat(fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if isinstance(value, Mapping | list):
            kind = "ARRAY" if isinstance(value, list) else "MAP"
            raise ConnectError(
                f"Offsets may only contain primitive types as values, but field {name} contains {kind}"
            )


def _value(fields: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in fields:
        raise ConnectError(f"{what} is missing the '{name}' key, which is required")
    return fields[name]


def _invalid(what: str, value: object, field: str, why: str) -> ConnectError:
    return ConnectError(f"{what} has an invalid value {shown(value)} for the '{field}' key{why}")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: object) -> str:
    """A value as a Java worker shows it in its messages."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float():
            return double_text(value)
        case Mapping():
            fields = hash_ordered(value).items()
            return f"{{{', '.join(f'{name}={shown(item)}' for name, item in fields)}}}"
        case Sequence() if not isinstance(value, str):
            return f"[{', '.join(map(shown, value))}]"
    return str(value)
