"""Whose query is to be tried: a file or a connector's name in; the flow that is meant, with its settings, out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sparkmirror.config.connector_files import read_connector
from sparkmirror.config.flow_keys import nearest
from sparkmirror.config.flows import MirrorMakerConfig
from sparkmirror.config.providers import STANDARD_PROVIDERS, resolve, resolve_named
from sparkmirror.config.query import SQL, SQL_FILE
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.connectors.source_settings import SourceSettings, source_settings
from sparkmirror.errors import ConfigError
from sparkmirror.preflight.flow import connector_class
from sparkmirror.preflight.subjects import read_worker
from sparkmirror.veil import VEIL

_SOURCE = "MirrorSourceConnector"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_ADDRESSES = ("producer.override.bootstrap.servers", "target.cluster.bootstrap.servers")
# What says where Spark runs, and who listens there: a preview runs here, beside whatever else does.
_ELSEWHERE = (
    "spark.master",
    "spark.submit.",
    "spark.driver.host",
    "spark.driver.port",
    "spark.driver.bindAddress",
    "spark.driver.blockManager.port",
    "spark.blockManager.port",
    "spark.dynamicAllocation.",
    "spark.eventLog.",
    "spark.ui.",
)


@dataclass(frozen=True, slots=True)
class QueryFlow:
    """A flow that may have a query."""

    name: str
    props: Mapping[str, str] = field(repr=False)  # may hold secrets
    """The config of its source connector, references resolved."""
    worker: WorkerConfig = field(repr=False)
    spark: Mapping[str, str] = field(repr=False)

    @property
    def has_query(self) -> bool:
        return any((self.props.get(key) or "").strip() for key in (SQL, SQL_FILE))

    def settings(self, sql: str | None = None) -> SourceSettings:
        """As the copy has them, with the query that the config has, or with `sql`; ConfigError for what is wrong."""
        if sql is None:
            return source_settings(self.props, self.worker)
        others = {key: value for key, value in self.props.items() if key != SQL_FILE}
        return source_settings({**others, SQL: sql}, self.worker)


def read_flows(path: Path, worker: Path | None) -> list[QueryFlow]:
    """The flows of an mm2.properties, or that of a connector's file."""
    if not path.exists():
        raise ConfigError(
            f"{path} does not exist.",
            "Name a file, or a connector together with --url of a worker.",
        )
    properties = read_connector(path)
    if "connector.class" in properties:  # such configs may name their clusters, too
        return [connector(properties, worker, path.stem)]
    if "clusters" in properties:
        return _pairs(properties)
    raise ConfigError(
        f"{path} is neither an mm2.properties (it has no clusters) nor a connector (no connector.class).",
        "Name one of these.",
    )


def _pairs(properties: Mapping[str, str]) -> list[QueryFlow]:
    VEIL.learn(properties)
    config = MirrorMakerConfig(properties)
    found = []
    for pair in config.replicating_pairs():
        worker = {**STANDARD_PROVIDERS, **config.worker_config(pair), **config.mirror}
        props = config.connector_config(pair, "source")
        VEIL.learn(props)
        flow = QueryFlow(str(pair), props, WorkerConfig.parse(worker), local_spark(config.spark))
        found.append(flow)
    return found


def connector(written: Mapping[str, str], worker: Path | None, name: str) -> QueryFlow:
    """The flow of one connector's config as it was written."""
    config = None if worker is None else read_worker(worker)
    props = resolve(written) if config is None else resolve_named(written, config.properties)
    VEIL.learn(props)
    props.setdefault("name", name)
    kind = connector_class(props)
    if kind != _SOURCE:
        raise ConfigError(
            f"Connector {props['name']} is a {kind}, which has no query.", f"Name a {_SOURCE}."
        )
    found = config or _some_worker(props)
    flow = f"{props.get('source.cluster.alias', 'source')}->{props.get('target.cluster.alias', 'target')}"
    return QueryFlow(flow, props, found, local_spark(found.spark))


def _some_worker(props: Mapping[str, str]) -> WorkerConfig:
    """Any worker that the connector could run on: of the worker's file only addresses and logins matter here."""
    address = next((props[key] for key in _ADDRESSES if props.get(key)), None)
    if address is None:
        raise ConfigError(
            f"Connector {props['name']} does not say where its target cluster is.",
            "Set target.cluster.bootstrap.servers, or name the worker's file with --worker.",
        )
    return WorkerConfig.parse(
        {
            "bootstrap.servers": address,
            "key.converter": _BYTES,
            "value.converter": _BYTES,
            "offset.storage.file.filename": "preview",
        },
        standalone=True,
    )


def local_spark(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of Spark for a preview: on this machine, one task at a time."""
    kept = {name: value for name, value in settings.items() if not name.startswith(_ELSEWHERE)}
    return {**kept, "spark.master": "local[1]"}


def chosen(flows: Sequence[QueryFlow], wanted: str | None, *, any_will_do: bool) -> QueryFlow:
    """The flow that `--flow` means; without it the only one (with a query, unless another is given)."""
    names = [flow.name for flow in flows]
    if wanted is not None:
        found = [flow for flow in flows if flow.name == wanted.replace(" ", "")]
        if not found:
            raise ConfigError(
                f"There is no flow {wanted}, only {', '.join(names)}.{nearest(wanted, names)}",
                "Name one of these with --flow.",
            )
    else:
        found = [flow for flow in flows if any_will_do or flow.has_query]
    if len(found) > 1:
        raise ConfigError(
            f"There are several flows: {', '.join(flow.name for flow in found)}.",
            "Say with --flow which one is meant.",
        )
    if not found or not (any_will_do or found[0].has_query):
        raise ConfigError(
            f"{', '.join(flow.name for flow in found or flows)}: there is no query.",
            "Set transform.sql or transform.sql.file, or give one with --sql.",
        )
    return found[0]
