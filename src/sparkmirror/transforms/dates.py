"""Java's date patterns (`SimpleDateFormat`, UTC, English): a pattern and a time in milliseconds in, text out.

Of the letters that depend on the worker's country only those of the week do (`w`, `W`, `Y`): here, as with Java's own default,
weeks begin on Sunday and the first week of a year is that of 1 January.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from sparkmirror.errors import ConfigError

_DAY_MS = 86_400_000
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]


@dataclass(frozen=True, slots=True)
class _Moment:
    """A time in UTC, taken apart."""

    year: int
    month: int
    day: int
    day_of_year: int
    weekday: int
    """0 is Sunday."""
    hour: int
    minute: int
    second: int
    milli: int


def _moment(timestamp: int) -> _Moment:
    days, rest = divmod(timestamp, _DAY_MS)
    year, month, day = _civil(days)
    return _Moment(
        year,
        month,
        day,
        days - _days_before(year) + 1,
        (days + 4) % 7,
        rest // 3_600_000,
        rest // 60_000 % 60,
        rest // 1000 % 60,
        rest % 1000,
    )


def _civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of the days since 1970 began, for any year: Python's own dates end with the year 9999.

    Counted in years that begin with March, so that the leap day is the last; 400 of them have 146,097 days.
    """
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year_of_era + (month <= 2), month, day


def _days_before(year: int) -> int:
    """Days from the beginning of 1970 to that of `year`."""
    before = year - 1
    return 365 * (year - 1970) + before // 4 - before // 100 + before // 400 - 477


def milliseconds(year: int, month: int, day: int, time_of_day: int = 0) -> int:
    """The time of a date; months and days that are too large count on into the next, as Java's lenient calendar does."""
    years, month = divmod(month - 1, 12)
    days = _days_before(year + years)
    while _civil(days)[1] != month + 1:
        days += 28
    first = days - _civil(days)[2] + 1
    return (first + day - 1) * _DAY_MS + time_of_day


def _week_of_year(moment: _Moment) -> tuple[int, int]:
    """The year that the week counts to, and its number in that year."""
    first = (moment.weekday - moment.day_of_year + 1) % 7  # weekday of 1 January
    length = _days_before(moment.year + 1) - _days_before(moment.year)
    if moment.day_of_year - 1 + (6 - moment.weekday) >= length:  # its Saturday is in the next year
        return moment.year + 1, 1
    return moment.year, (moment.day_of_year - 1 + first) // 7 + 1


def _number(value: Callable[[_Moment], int]) -> Callable[[_Moment, int], str]:
    return lambda moment, width: str(value(moment)).zfill(width)


def _year(value: Callable[[_Moment], int]) -> Callable[[_Moment, int], str]:
    """Two letters are the last two digits, any other number of them the year."""

    def text(moment: _Moment, width: int) -> str:
        year = value(moment)
        return str(year % 100).zfill(2) if width == 2 else str(year).zfill(width)

    return text


def _month(moment: _Moment, width: int) -> str:
    if width < 3:
        return str(moment.month).zfill(width)
    name = _MONTHS[moment.month - 1]
    return name if width > 3 else name[:3]


def _weekday(moment: _Moment, width: int) -> str:
    name = _DAYS[moment.weekday]
    return name if width > 3 else name[:3]


def _week_of_month(moment: _Moment) -> int:
    first = (moment.weekday - moment.day + 1) % 7
    return (moment.day - 1 + first) // 7 + 1


_SECOND, _MINUTE, _HOUR = 1000, 60_000, 3_600_000
# Letter: how its field is written (given the number of letters), and how long it stays the same.
_FIELDS: dict[str, tuple[Callable[[_Moment, int], str], int]] = {
    "G": (lambda moment, width: "AD", _DAY_MS),
    "y": (_year(lambda m: m.year), _DAY_MS),
    "Y": (_year(lambda m: _week_of_year(m)[0]), _DAY_MS),
    "M": (_month, _DAY_MS),
    "L": (_month, _DAY_MS),
    "w": (_number(lambda m: _week_of_year(m)[1]), _DAY_MS),
    "W": (_number(_week_of_month), _DAY_MS),
    "D": (_number(lambda m: m.day_of_year), _DAY_MS),
    "d": (_number(lambda m: m.day), _DAY_MS),
    "F": (_number(lambda m: (m.day - 1) // 7 + 1), _DAY_MS),
    "E": (_weekday, _DAY_MS),
    "u": (_number(lambda m: m.weekday or 7), _DAY_MS),
    "a": (lambda moment, width: "AM" if moment.hour < 12 else "PM", _HOUR),
    "H": (_number(lambda m: m.hour), _HOUR),
    "k": (_number(lambda m: m.hour or 24), _HOUR),
    "K": (_number(lambda m: m.hour % 12), _HOUR),
    "h": (_number(lambda m: m.hour % 12 or 12), _HOUR),
    "m": (_number(lambda m: m.minute), _MINUTE),
    "s": (_number(lambda m: m.second), _SECOND),
    "S": (_number(lambda m: m.milli), 1),
    "z": (lambda moment, width: "Coordinated Universal Time" if width > 3 else "UTC", _DAY_MS),
    "Z": (lambda moment, width: "+0000", _DAY_MS),
    "X": (lambda moment, width: "Z", _DAY_MS),
}
_LONGEST_ZONE = 3
Part = tuple[str, int]


@dataclass(frozen=True, slots=True)
class DatePattern:
    """A pattern as parts: a letter and how many of it, or a text and 0."""

    parts: tuple[Part, ...]
    step: int
    """For how many milliseconds, counted from 1970, the text stays the same."""

    @classmethod
    def parse(cls, pattern: str, key: str) -> DatePattern:
        """ConfigError, with the key, for what Java does not take either."""
        parts: list[Part] = []
        position = 0
        while position < len(pattern):
            char = pattern[position]
            if char == "'":
                text, position = _quoted(pattern, position, key)
                parts.append((text, 0))
                continue
            end = position
            while pattern.startswith(char, end):
                end += 1
            parts.append(_field(char, end - position, pattern, key))
            position = end
        steps = [_FIELDS[letter][1] for letter, width in parts if width]
        return cls(tuple(parts), min(steps, default=_DAY_MS))

    def format(self, timestamp: int) -> str:
        return _formatted(self.parts, timestamp // self.step * self.step)


def _field(char: str, width: int, pattern: str, key: str) -> Part:
    if not (char.isascii() and char.isalpha()):
        return char * width, 0
    if char not in _FIELDS or (char == "X" and width > _LONGEST_ZONE):
        raise ConfigError(
            f"{key}={pattern}: {char * width} means nothing in a date pattern.",
            "Use the letters of Java's SimpleDateFormat, and quotes around what is meant as it is.",
        )
    return char, width


def _quoted(pattern: str, position: int, key: str) -> tuple[str, int]:
    """The text in quotes that begins here, and where it ends; two quotes are one, inside and outside."""
    if pattern.startswith("''", position):
        return "'", position + 2
    text = ""
    position += 1
    while position < len(pattern):
        if pattern.startswith("''", position):
            text += "'"
            position += 2
        elif pattern[position] == "'":
            return text, position + 1
        else:
            text += pattern[position]
            position += 1
    raise ConfigError(f"{key}={pattern}: a quote is not closed.", f"Correct {key}.")


@lru_cache(maxsize=4096)
def _formatted(parts: tuple[Part, ...], timestamp: int) -> str:
    moment = _moment(timestamp)
    return "".join(_FIELDS[text][0](moment, width) if width else text for text, width in parts)
