"""Every regular expression takes time in proportion to the text: Python's engine lets no other thread run meanwhile.

One long value would stop the whole worker.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import pkgutil
import re
import time
from collections.abc import Iterator
from types import ModuleType

import pytest

import sparkmirror

_REPEATS = 6000
_MOST_S = 0.1
"""A linear one takes some 0.1 ms for so many; a quadratic one half a second."""
_OF_THE_OWNER = ("sparkmirror.preflight.key_rules._ANOTHER_ARROW",)
"""These see nothing but keys of the file that `check` is given."""
_ORDINARY = ("a", "0", " ", "-", ".", ":", '"', "'", "\\", "(", "[", "{", "/*")


def _modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(sparkmirror.__path__, "sparkmirror."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def _patterns(value: object) -> Iterator[re.Pattern[str]]:
    """The expressions of a module's constant, also of tables of them."""
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _patterns(each)
    elif isinstance(value, list | tuple) and len(value) < 100:
        for each in value:
            yield from _patterns(each)


def _all_patterns() -> Iterator[tuple[str, re.Pattern[str], bool]]:
    """Each with its name, and whether it is looked for anywhere in texts, not only at their beginning."""
    for module in _modules():
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            if name.startswith("__") or not re.search(rf"(?m)^{name}\b", source):
                continue
            is_sought = re.search(rf"\b{name}\.(search|finditer|findall|sub|split)\b", source)
            full = f"{module.__name__}.{name}"
            for pattern in () if full in _OF_THE_OWNER else _patterns(value):
                yield full, pattern, is_sought is not None


_FOUND = list(_all_patterns())


def _units(pattern: str) -> Iterator[str]:
    """What may be repeated to make an expression go astray: its own signs and words, alone and in pairs."""
    plain = re.sub(r"\\[a-zA-Z]|[\s?+*|^]", "", pattern)
    own = list(dict.fromkeys([*re.findall(r"[A-Za-z]{2,}", plain)[:4], *re.findall(r"\W", plain)]))
    yield from (*_ORDINARY, *own)
    for first, second in itertools.permutations(own[:5], 2):
        yield first + second


@pytest.mark.parametrize(
    ("name", "pattern", "is_sought"), _FOUND, ids=[name for name, _, _ in _FOUND]
)
def test_takes_linear_time(name: str, pattern: re.Pattern[str], is_sought: bool) -> None:
    for unit in _units(pattern.pattern):
        for begin in ("", unit[:1] + "${x='"):
            text = begin + unit * (_REPEATS // len(unit)) + "\n!"
            took = _time(pattern, text, is_sought)
            if took > _MOST_S:  # once more: the machine may have been busy
                took = min(took, _time(pattern, text, is_sought))
            assert took < _MOST_S, f"{took:.2f} s for {begin!r} and {unit!r} again and again"


def _time(pattern: re.Pattern[str], text: str, is_sought: bool) -> float:
    began = time.perf_counter()
    pattern.fullmatch(text)
    if is_sought:
        for _ in pattern.finditer(text):
            pass
    return time.perf_counter() - began
