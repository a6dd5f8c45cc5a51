"""What files say: an mm2.properties, a worker's file or a connector's config in; flows and what is wrong with keys out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sparkmirror.config.connector_files import read_connector
from sparkmirror.config.environment import properties_from_environment
from sparkmirror.config.flows import MirrorMakerConfig, SourceAndTarget
from sparkmirror.config.providers import STANDARD_PROVIDERS, resolve, resolve_named
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.errors import ConfigError
from sparkmirror.policy.naming import DefaultReplicationPolicy
from sparkmirror.preflight.check import Subject
from sparkmirror.preflight.findings import (
    Finding,
    Section,
    error,
    note,
    ok,
    warning,
    without_repeats,
)
from sparkmirror.preflight.flow import (
    Flow,
    connector_class,
    connector_flow,
    joined,
    worker_settings,
)
from sparkmirror.preflight.key_rules import connector_findings, mm2_findings
from sparkmirror.preflight.query_rules import query_findings
from sparkmirror.preflight.spark_rules import spark_findings
from sparkmirror.spark.gateway import spark_home
from sparkmirror.spark.session_config import spark_defaults

_WORKER_SIGNS = (
    "group.id",
    "offset.storage.topic",
    "offset.storage.file.filename",
    "key.converter",
)
_HIDDEN = ("[hidden]", "********")


def read_subject(paths: Sequence[Path], worker: Path | None) -> Subject:
    """All that the files say; ConfigError for one that is none of the three kinds."""
    config = None if worker is None else read_worker(worker)
    sections: list[Section] = []
    flows: list[Flow] = []
    if worker is not None and config is not None:
        sections.append(_worker_section(f"file {worker}", config))
    for path in paths:
        found = _read(path, config)
        sections += found.sections
        flows += found.flows
    if not flows and config is not None:
        flows.append(worker_flow(config))
    return Subject(sections, joined(flows))


def _read(path: Path, worker: WorkerConfig | None) -> Subject:
    if not path.exists():
        raise ConfigError(
            f"{path} does not exist.",
            "Name a file, or a connector together with --url of a worker.",
        )
    properties = read_connector(path)
    title = f"file {path}"
    if "connector.class" in properties:  # such configs may name their clusters, too
        return connector_subject(properties, worker, title)
    if "clusters" in properties:
        return mm2_subject(properties, title)
    if any(key in properties for key in _WORKER_SIGNS):
        config = read_worker(path)
        return Subject([_worker_section(title, config)], [worker_flow(config)])
    raise ConfigError(
        f"{path} is neither an mm2.properties (it has no clusters), nor a connector (no connector.class), nor a worker's "
        "file.",
        "Name one of these.",
    )


# -- dedicated mode ---------------------------------------------------------------------------------


def mm2_subject(properties: Mapping[str, str], title: str) -> Subject:
    """The pairs of an mm2.properties."""
    config = MirrorMakerConfig(properties)
    findings = mm2_findings(properties, config.clusters)
    flows = [_pair_flow(config, pair) for pair in config.pairs()]
    for pair in config.replicating_pairs():
        findings += query_findings(config.connector_config(pair, "source"))
    findings += spark_findings(_spark(config.spark), _intervals(flows))
    findings = without_repeats(findings)
    if not any(finding.check == "keys" for finding in findings):
        findings.append(ok("keys", f"All {len(properties)} keys reach something."))
    return Subject([Section(title, findings)], flows)


def _spark(given: Mapping[str, str]) -> dict[str, str]:
    """The settings of the session, as far as files say."""
    return {**spark_defaults(spark_home()), **given}


def _intervals(flows: Sequence[Flow]) -> list[int]:
    """How often the queries of some flows run a job while records come, in milliseconds."""
    queries = [flow.copying.query for flow in flows if flow.copying is not None]
    return [query.interval_ms for query in queries if query is not None]


def _pair_flow(config: MirrorMakerConfig, pair: SourceAndTarget) -> Flow:
    worker = WorkerConfig.parse(
        {**STANDARD_PROVIDERS, **config.worker_config(pair), **config.mirror}
    )
    parts = [
        connector_flow(config.connector_config(pair, kind), worker)
        for kind in config.connector_kinds(pair)
    ]
    flow = joined(parts)[0]
    if flow.worker is None or flow.target is None:
        return flow
    return replace(flow, worker=replace(flow.worker, alias=pair.target))


# -- connectors -------------------------------------------------------------------------------------


def connector_subject(
    written: Mapping[str, str], worker: WorkerConfig | None, title: str
) -> Subject:
    """One connector's config as it was written."""
    findings: list[Finding] = list(_secrets(written))
    props = resolve(written) if worker is None else resolve_named(written, worker.properties)
    props.setdefault("name", Path(title).stem)
    if worker is not None and not worker.standalone:  # there these files are its owner's
        refused = worker.permits.problems(props)
        findings += (error("allowed", problem.message) for problem in refused)
    kind = connector_class(props)
    flow = connector_flow(props, worker)
    findings += connector_findings(props, kind)
    if kind == "MirrorSourceConnector":
        findings += query_findings(props)
    if worker is None:
        findings.append(
            note(
                "worker",
                "The worker is not known: what its file says of producers, and its own cluster, are not checked.",
                "Name its file with --worker.",
            )
        )
    else:
        findings += _worker_traps(props, worker)
        intervals = _intervals([flow])
        if intervals:  # else the worker's file has said it
            findings += spark_findings(_spark(worker.spark), intervals)
    if not any(finding.check == "keys" for finding in findings):
        findings.append(ok("keys", f"All {len(props)} keys reach something."))
    return Subject([Section(title, findings)], [flow])


def _secrets(written: Mapping[str, str]) -> list[Finding]:
    masked = [name for name, value in written.items() if value.strip() in _HIDDEN]
    if not masked:
        return []
    return [
        warning(
            "secrets",
            f"{', '.join(masked)}: the worker gives no secrets away, so logging in cannot be checked.",
            "Check the connector's file instead.",
        )
    ]


def _worker_traps(props: Mapping[str, str], worker: WorkerConfig) -> list[Finding]:
    """Where MirrorMaker 2 on the same worker would write the copies: to the worker's own cluster."""
    own, override = worker.bootstrap, props.get("producer.override.bootstrap.servers")
    target = props.get("target.cluster.bootstrap.servers")
    if override is not None or target is None or _addresses(own) == _addresses(target):
        return []
    return [
        note(
            "worker",
            f"The worker's own cluster ({own}) is not the target ({target}). Copies are written to the target; "
            "MirrorMaker 2 would write them to the worker's cluster.",
            "Set producer.override.bootstrap.servers to the target if a Java worker is to run this connector too.",
        )
    ]


def _addresses(text: str) -> set[str]:
    return {item.strip() for item in text.split(",")}


# -- workers ----------------------------------------------------------------------------------------


def read_worker(path: Path) -> WorkerConfig:
    """A worker's file with what the environment says over it."""
    properties = {**read_connector(path), **properties_from_environment(os.environ)}
    return WorkerConfig.parse(properties, standalone=_is_standalone(properties))


def _is_standalone(properties: Mapping[str, str]) -> bool:
    return "offset.storage.file.filename" in properties and "group.id" not in properties


def worker_flow(worker: WorkerConfig) -> Flow:
    """A worker without connectors."""
    return Flow(
        source_alias="worker",
        target_alias="worker",
        policy=DefaultReplicationPolicy(),
        worker=worker_settings(worker),
        worker_config=worker,
    )


def _worker_section(title: str, worker: WorkerConfig) -> Section:
    findings = [
        note("keys", line) if " is an old key" in line else warning("keys", line)
        for line in worker.notes
    ]
    findings = findings or [ok("keys", f"All {len(worker.raw)} keys reach something.")]
    return Section(title, [*findings, *spark_findings(_spark(worker.spark), ())])
