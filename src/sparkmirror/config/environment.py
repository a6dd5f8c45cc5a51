"""A worker's settings in the environment: variables come in, worker properties go out.

The mapping is that of the common container images: `CONNECT_REST_PORT` is `rest.port`. Values are
taken as they are; quotes that the shell or the compose file left in them are part of the value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIX = "CONNECT_"

_UNDERSCORES = re.compile("_{1,3}")
_MEANING = {1: ".", 2: "_", 3: "-"}
# Switches of the images themselves: they set up logging and the class path, not the worker.
_IMAGE_PREFIXES = ("LOG4J_", "CUB_")
_IMAGE_SWITCHES = frozenset({"CLASSPATH", "CUB_CLASSPATH"})


def property_name(variable: str, prefix: str = PREFIX) -> str | None:
    """The worker property that `variable` sets; None if it sets none.

    One underscore is a dot, two are an underscore, three a dash; more are read from the left.
    """
    name = variable.removeprefix(prefix)
    if name in ("", variable) or name in _IMAGE_SWITCHES or name.startswith(_IMAGE_PREFIXES):
        return None
    return _UNDERSCORES.sub(lambda found: _MEANING[len(found[0])], name).lower()


def properties_from_environment(environ: Mapping[str, str], prefix: str = PREFIX) -> dict[str, str]:
    """The worker properties that the environment sets."""
    named = ((property_name(variable, prefix), value) for variable, value in environ.items())
    return {name: value for name, value in named if name is not None}


def with_environment(
    properties: Mapping[str, str], environ: Mapping[str, str], prefix: str = PREFIX
) -> dict[str, str]:
    """A file's properties and the environment's; the environment wins."""
    return {**properties, **properties_from_environment(environ, prefix)}
