"""Java property files: a path comes in, a map of strings goes out."""

from __future__ import annotations

import re
from pathlib import Path

import javaproperties

from sparkmirror.config.keys import java_trim
from sparkmirror.errors import ConfigError

_WRONG_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")


def read_properties(path: Path) -> dict[str, str]:
    """The properties of a file, values trimmed.

    Java trims a value when it gives it a type, which every value meets sooner or later; the few
    that escape (`A->B.enabled`) are then misread because of a blank at the end of a line, which
    nobody wants.
    """
    return {key: java_trim(value) for key, value in load_properties(path).items()}


def load_properties(path: Path) -> dict[str, str]:
    """The properties of a file exactly as `java.util.Properties` reads them (ISO-8859-1)."""
    text = _read_bytes(path).decode("iso-8859-1")
    try:
        # The parser's types are unknown to mypy; its result is a plain dict of strings.
        loaded: dict[str, str] = javaproperties.loads(text)
    except javaproperties.InvalidUEscapeError:
        # The error would quote what follows the backslash, which may be part of a password.
        raise ConfigError(
            f"{path} is not a properties file: line {_line_of_escape(text)} has a \\u that is none.",
            r"A backslash before u must be followed by four hexadecimal digits; write \\ for a "
            "backslash.",
        ) from None
    return loaded


def _line_of_escape(text: str) -> int:
    """The first line with an escape that lacks its digits; continued lines are counted, too."""
    lines = text.splitlines()
    wrong = (number for number, line in enumerate(lines, 1) if _WRONG_ESCAPE.search(line))
    return next(wrong, len(lines))


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"The file {path} does not exist.", "Check the path.") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path} is a directory.", "Name the properties file in it.") from error
    except OSError as error:
        raise ConfigError(
            f"The file {path} cannot be read: {error.strerror or error}.",
            "Check its permissions.",
        ) from error
