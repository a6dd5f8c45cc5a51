"""What a REST server is told in one line each: texts come in, listeners and header rules go out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparkmirror.config.keys import java_trim
from sparkmirror.config.validators import invalid

_LISTENER = re.compile(
    r"(?P<protocol>[A-Za-z]+)://(?:\[(?P<six>[\w\-%.:]+)\]|(?P<host>[\w\-%.]*)):(?P<port>\d+)",
    re.ASCII,
)
_HEADER_RULE = re.compile(r"(?P<action>\S+)\s+(?P<name>[^\s:]+)\s*:(?P<value>[^:]*)", re.DOTALL)
_QUOTED_OR_PLAIN = re.compile(r'\s*(?:"((?:[^"]|"")*)"\s*|([^,]*))(?:,|\Z)')
_ACTIONS = ("set", "add", "setDate", "addDate")


@dataclass(frozen=True, slots=True)
class Listener:
    """One address to listen on. An empty host means all interfaces, port 0 any free port."""

    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """One header for every answer; `action` is one of set, add, setDate, addDate.

    With the two date actions `value` is a number of milliseconds since 1970.
    """

    action: str
    name: str
    value: str


def parse_listener(text: str) -> Listener:
    """A listener; ValueError says what is wrong."""
    found = _LISTENER.fullmatch(java_trim(text))
    if found is None or found["protocol"].lower() not in ("http", "https"):
        raise ValueError("Each listener must be http://host:port or https://host:port")
    port = int(found["port"])
    if port > 65535:
        raise ValueError("A port must be no more than 65535")
    return Listener(found["protocol"].lower(), found["six"] or found["host"], port)


def parse_header_rules(text: str) -> tuple[HeaderRule, ...]:
    """The rules of `response.http.headers.config`; ValueError says which is wrong."""
    return tuple(_header_rule(rule) for rule in _split_rules(text))


def check_listeners(name: str, value: object) -> str | None:
    """The validator of `listeners` (which may not be empty) and `admin.listeners` (which may)."""
    if value is None:
        return None if name == "admin.listeners" else invalid(name, value, "Value must be non-null")
    items = value if isinstance(value, tuple) else ()
    if not items and name != "admin.listeners":
        return invalid(name, items, "At least one listener is needed, as http://:8083")
    for item in items:
        try:
            parse_listener(item)
        except ValueError as error:
            return invalid(name, item, str(error))
    return None


def check_header_rules(name: str, value: object) -> str | None:
    """The validator of `response.http.headers.config`."""
    try:
        parse_header_rules(str(value or ""))
    except ValueError as error:
        return invalid(name, value, str(error))
    return None


def _split_rules(text: str) -> list[str]:
    """Parts between commas; a part in double quotes may have commas in it, and "" for a quote."""
    found = _QUOTED_OR_PLAIN.finditer(text.strip())
    parts = [m[2].strip() if m[1] is None else m[1].replace('""', '"') for m in found]
    return [part for part in parts if part]


def _header_rule(text: str) -> HeaderRule:
    found = _HEADER_RULE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"'{text}' is not of the form '[action] [header name]:[header value]'")
    actions = {action.lower(): action for action in _ACTIONS}
    action = actions.get(found["action"].lower())
    if action is None:
        raise ValueError(f"'{found['action']}' is none of {', '.join(_ACTIONS)}")
    return HeaderRule(action, found["name"], found["value"].strip())
