"""The reference page of all keys: the key tables come in, Markdown goes out.

`python -m sparkmirror.tools.keys_page` writes docs/keys.md of this checkout anew; a test fails while
it is not up to date.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sparkmirror.config.definitions import CONNECTOR_KEYS, SOURCE_CONNECTOR_KEYS
from sparkmirror.config.keys import Key
from sparkmirror.config.keys_mirror import (
    CHECKPOINT_ONLY_KEYS,
    CONFIG_PROVIDERS_KEY,
    HEARTBEAT_ONLY_KEYS,
    SHARED_KEYS,
    SOURCE_ONLY_KEYS,
)
from sparkmirror.config.keys_security import PROTOCOL_KEY, SECURITY_KEYS
from sparkmirror.config.keys_transforms import STAGE_KEYS
from sparkmirror.config.keys_worker import (
    COMMON_WORKER_KEYS,
    DISTRIBUTED_KEYS,
    RESTART_KEYS,
    STANDALONE_KEYS,
)
from sparkmirror.config.plugins import (
    BYTE_ARRAY_CONVERTER,
    CONNECTORS,
    PREDICATES,
    STRUCTURED_TRANSFORMATIONS,
    TRANSFORMATIONS,
    Plugin,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "keys.md"

_INTRODUCTION = """\
# All keys

Made from the tables in `sparkmirror.config` by `python -m sparkmirror.tools.keys_page`; do not edit it by hand. The same tables
answer `GET /connector-plugins/{plugin}/config` and `PUT /connector-plugins/{plugin}/config/validate`. Names, types and defaults
are those of Kafka 4.3.1; where a default of ours differs, Kafka's stands beside it. What the settings of ours are for is told in
[settings.md](settings.md).

A value of type *list* is separated by commas, a *class* is named as in Java, a *password* is never logged or shown by validation
(`GET /connectors/{name}/config` shows it as it was written: use config providers for secrets).
"""

_ENVIRONMENT = """\
In containers a worker takes its keys from variables that begin with `CONNECT_`: `CONNECT_REST_PORT` is `rest.port`. One
underscore is a dot, two are an underscore, three a dash. Variables win over the file. Values are taken as they are, quotes
included.

Further families: `producer.*`, `consumer.*` and `admin.*` for the clients of connectors, any topic property under
`offset.storage.*`, `config.storage.*` and `status.storage.*`, `listeners.https.*` and `admin.listeners.https.*` (keys `ssl.*` for
REST; without any of them those of the worker), `config.providers.<name>.class` and `.param.*`, `spark.*`, `mirror.*`.

Old keys: `rest.port` and `rest.host.name` are read as `listeners` where that is not set; `internal.key.converter` and
`internal.value.converter` have no effect. Both are noted in the log, and so is every key that is not known.
"""

_CONVERTERS = f"""\
Records are copied as bytes, which is what `{BYTE_ARRAY_CONVERTER}` means for keys and values. The worker's converters count
unless the connector has its own. A key or value converter that would write records in another form is refused when the connector
is created. Headers are copied as bytes with that converter and with `SimpleHeaderConverter`, Connect's default; others are
refused.
"""

_STEPS = """\
Each alias in `transforms` has a class in `transforms.<alias>.type` (full or short name) and the keys of that class under
`transforms.<alias>.`; predicates likewise. Every transformation has these besides its own:
"""


def keys_page() -> str:
    """The page."""
    return "\n".join(
        (_INTRODUCTION, *_worker_sections(), *_connector_sections(), *_step_sections())
    )


def main() -> None:
    """Write the page."""
    PAGE.write_text(keys_page(), encoding="utf-8")


def _worker_sections() -> list[str]:
    common = {key.name for key in COMMON_WORKER_KEYS}
    return [
        "## Workers\n",
        _ENVIRONMENT,
        _table(_without_security(COMMON_WORKER_KEYS)),
        "### Distributed workers\n",
        _table(key for key in DISTRIBUTED_KEYS if key.name not in common),
        "### Standalone workers\n",
        _table(key for key in STANDALONE_KEYS if key.name not in common),
        "## Security\n",
        "For workers, connectors (`source.cluster.*`, `target.cluster.*`) and clients.\n",
        _table((PROTOCOL_KEY, *SECURITY_KEYS)),
    ]


def _connector_sections() -> list[str]:
    classes = ", ".join(f"`{plugin.class_name}`" for plugin in CONNECTORS)
    return [
        "## Connectors\n",
        f"{classes}; `Mirror…Connector` and `Mirror…` are short for them.\n",
        "### What Connect gives every connector\n",
        _CONVERTERS,
        _table((*CONNECTOR_KEYS, *SOURCE_CONNECTOR_KEYS)),
        "Besides, a connector may set these keys of the worker for itself: "
        + ", ".join(f"`{key.name}`" for key in RESTART_KEYS)
        + "; and `producer.override.*`, `consumer.override.*`, `admin.override.*` where "
        "`connector.client.config.override.policy` of the worker allows it.\n",
        "### What the three share\n",
        _table((*SHARED_KEYS, CONFIG_PROVIDERS_KEY)),
        "### MirrorSourceConnector\n",
        _table(SOURCE_ONLY_KEYS),
        "### MirrorCheckpointConnector\n",
        _table(CHECKPOINT_ONLY_KEYS),
        "### MirrorHeartbeatConnector\n",
        _table(HEARTBEAT_ONLY_KEYS),
    ]


def _step_sections() -> list[str]:
    needless = sorted(
        {name.rpartition(".")[2].partition("$")[0] for name in STRUCTURED_TRANSFORMATIONS}
    )
    return [
        "## Transformations\n",
        _STEPS,
        _table(STAGE_KEYS),
        *(_plugin(plugin) for plugin in TRANSFORMATIONS),
        f"Refused, since they need records with fields: {', '.join(needless)}.\n",
        "## Predicates\n",
        *(_plugin(plugin) for plugin in PREDICATES),
    ]


def _plugin(plugin: Plugin) -> str:
    keys = _table(plugin.keys) if plugin.keys else "No keys of its own.\n"
    return f"### {plugin.simple_name}\n\n`{plugin.class_name}`\n\n{keys}"


def _without_security(keys: Iterable[Key]) -> list[Key]:
    security = {key.name for key in (PROTOCOL_KEY, *SECURITY_KEYS)}
    return [key for key in keys if key.name not in security]


def _table(keys: Iterable[Key]) -> str:
    rows = "".join(_row(key) for key in keys)
    return f"| key | type | default | importance | meaning |\n|---|---|---|---|---|\n{rows}"


def _row(key: Key) -> str:
    meaning = key.doc
    if key.aliases:
        meaning += f" Formerly {', '.join(f'`{name}`' for name in key.aliases)}."
    cells = (f"`{key.name}`", key.type.lower(), _default(key), key.importance.lower(), meaning)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |\n"


def _default(key: Key) -> str:
    if key.required:
        return "**required**"
    shown = "" if key.default in (None, "") else f"`{key.default}`"
    return shown if key.mm2_default is None else f"{shown} (Kafka: `{key.mm2_default}`)"


if __name__ == "__main__":
    main()
