"""Which flows a table is about: the file of a user in, what it takes to read from their clusters out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from sparkmirror.config.connector_files import read_connector
from sparkmirror.config.flow_keys import nearest
from sparkmirror.config.flows import MirrorMakerConfig, SourceAndTarget
from sparkmirror.config.providers import STANDARD_PROVIDERS
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.connectors.source_settings import SourceSettings, source_settings
from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access.sent_files import read_files
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import ClientSettings


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow; travels to the executor that reads it."""

    name: str
    settings: SourceSettings = field(repr=False)  # may hold secrets
    has_positions: bool = True
    """False: a connector's file alone, which does not tell where its worker keeps positions."""

    @property
    def clusters(self) -> tuple[ClientSettings, ...]:
        """Those that it connects to."""
        return self.settings.source, self.settings.target, self.settings.store_cluster

    def with_files(self) -> Flow:
        """The same with the contents of keystores and the like, which an executor need not have."""
        source, target, store = (
            replace(each, security=replace(each.security, files=read_files(each)))
            for each in self.clusters
        )
        return replace(
            self, settings=replace(self.settings, source=source, target=target, store_cluster=store)
        )

    @contextmanager
    def source(self) -> Iterator[Cluster]:
        with self._cluster(self.settings.source) as cluster:
            yield cluster

    @contextmanager
    def target(self) -> Iterator[Cluster]:
        with self._cluster(self.settings.target) as cluster:
            yield cluster

    @contextmanager
    def worker_cluster(self) -> Iterator[Cluster]:
        """The cluster with the positions."""
        with self._cluster(self.settings.store_cluster) as cluster:
            yield cluster

    @contextmanager
    def _cluster(self, settings: ClientSettings) -> Iterator[Cluster]:
        cluster = Cluster(replace(settings, client_id=f"{self.name}|tables"))
        try:
            yield cluster
        finally:
            cluster.close()


# -- files ----------------------------------------------------------------------------------------


def read_flows(path: Path, wanted: str | None, worker: Path | None) -> list[Flow]:
    """The flows of an mm2.properties (only `wanted`, if that is given), or that of a connector's file.

    ConfigError for a file, a flow or a value that is wrong. References to secrets are resolved for these flows only.
    """
    properties = read_connector(path)
    if "connector.class" in properties:  # such configs may name their clusters, too
        flow = _connector(properties, worker, path)
        _chosen([flow.name], wanted, path)
        return [flow]
    if "clusters" not in properties:
        raise ConfigError(
            f"{path} is neither an mm2.properties (it has no clusters) nor a connector (no connector.class).",
            "Name one of these with option file.",
        )
    if worker is not None:
        raise ConfigError(
            f"{path} is an mm2.properties, which has the settings of its workers itself.",
            "Leave option worker out.",
        )
    config = MirrorMakerConfig(properties)
    pairs = {str(pair): pair for pair in config.enabled_pairs()}
    return [_pair(config, pairs[name]) for name in _chosen(list(pairs), wanted, path)]


def _pair(config: MirrorMakerConfig, pair: SourceAndTarget) -> Flow:
    worker = {**STANDARD_PROVIDERS, **config.worker_config(pair), **config.mirror}
    connector = config.connector_config(pair, "source")
    return Flow(str(pair), source_settings(connector, WorkerConfig.parse(worker)))


def _connector(properties: dict[str, str], worker: Path | None, path: Path) -> Flow:
    # What workers are made of takes long to import.
    from sparkmirror.control.assembly import with_standalone_topic
    from sparkmirror.tools.preview_flows import connector

    found = connector(properties, worker, path.stem)
    config = found.worker
    if worker is not None and config.standalone:
        config = with_standalone_topic(config)
    return Flow(found.name, source_settings(found.props, config), has_positions=worker is not None)


def _chosen(names: Sequence[str], wanted: str | None, path: Path) -> list[str]:
    if not names:
        raise ConfigError(f"No flow of {path} copies.", "Enable one, as in A->B.enabled=true.")
    if wanted is None:
        return list(names)
    name = wanted.replace(" ", "")
    if name not in names:
        raise ConfigError(
            f"There is no flow {wanted} in {path}, only {', '.join(names)}.{nearest(wanted, names)}",
            "Name one of these with option flow, or leave it out for all.",
        )
    return [name]
