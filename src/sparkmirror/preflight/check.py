"""The whole check: flows and findings about their files in, a report out; all clusters are looked at at the same time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from sparkmirror.errors import KafkaError
from sparkmirror.kafka.api_versions import Use, uses
from sparkmirror.kafka.settings import ClientSettings
from sparkmirror.preflight import naming
from sparkmirror.preflight.cluster_rules import cluster_findings, offered_by
from sparkmirror.preflight.facts import ClusterFacts
from sparkmirror.preflight.findings import Finding, Report, Section, error, failed, note
from sparkmirror.preflight.flow import Flow
from sparkmirror.preflight.flow_check import FlowCheck
from sparkmirror.preflight.privileges import Side
from sparkmirror.preflight.probing import Deadline, Seen, at_once, look_at
from sparkmirror.preflight.query_rules import dead_letter_findings

Tell = Callable[[str], None]
_SIDES: tuple[Side, ...] = ("source", "target", "worker")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be checked: what was found in files already, and the flows that they say."""

    sections: Sequence[Section]
    flows: Sequence[Flow]


def check(subject: Subject, seconds: float, tell: Tell = lambda _: None) -> Report:
    """Look at everything; `tell` hears what is being done."""
    deadline = Deadline(seconds)
    clusters = _clusters(subject.flows)
    seen = _look(clusters, deadline, tell)
    sections = [*subject.sections, *_cluster_sections(clusters, seen)]
    checks = [_flow_check(flow, seen, deadline) for flow in subject.flows]
    done = at_once(lambda flows: _flow_sections(flows, tell), [checks], deadline).get(0)
    if not isinstance(done, list):  # it is left to its thread, and so are the clusters
        late = f"The flows were not checked within {seconds:g} s: a cluster answers too slowly."
        finding = error("time", late, "Give it more time with --timeout.")
        return Report([*sections, Section("flows", [finding])])
    for found in seen.values():
        if found.cluster is not None:
            found.cluster.close()
    return Report([*sections, *done])


def _clusters(flows: Sequence[Flow]) -> dict[ClientSettings, set[Side]]:
    """Each cluster once, with what it is of the flows."""
    found: dict[ClientSettings, set[Side]] = {}
    for flow in flows:
        for side in _SIDES:
            settings = _settings(flow, side)
            if settings is not None:
                found.setdefault(settings, set()).add(side)
    return found


def _settings(flow: Flow, side: Side) -> ClientSettings | None:
    return {"source": flow.source, "target": flow.target, "worker": flow.worker}[side]


def _look(
    clusters: Collection[ClientSettings], deadline: Deadline, tell: Tell
) -> dict[ClientSettings, Seen]:
    wanted = list(clusters)
    for settings in wanted:
        tell(f"Looking at {settings} …")
    answers = at_once(lambda settings: look_at(settings, deadline), wanted, deadline)
    found: dict[ClientSettings, Seen] = {}
    for index, settings in enumerate(wanted):
        answer = answers.get(index)
        if isinstance(answer, Seen):
            found[settings] = answer
            continue
        failure = answer if isinstance(answer, KafkaError) else _late(settings, deadline)
        found[settings] = Seen(ClusterFacts(settings.alias, (), failure=failure), None)
    return found


def _late(settings: ClientSettings, deadline: Deadline) -> KafkaError:
    return KafkaError(
        f"{settings} did not answer within {deadline.seconds:g} s.",
        "Check the network, or give it more time with --timeout.",
    )


def _cluster_sections(
    clusters: dict[ClientSettings, set[Side]], seen: dict[ClientSettings, Seen]
) -> list[Section]:
    sides_of: dict[str, set[Side]] = {}
    for settings, sides in clusters.items():
        sides_of.setdefault(_title(settings), set()).update(sides)
    findings: dict[str, list[Finding]] = {}
    used: dict[str, list[Use]] = {}
    for settings in clusters:
        title, facts = _title(settings), seen[settings].facts
        found = findings.setdefault(title, [])
        found += [one for one in cluster_findings(facts, sides_of[title]) if one not in found]
        used[title] = used.get(title) or uses(offered_by(facts), sides_of[title])
    return [Section(title, found, used[title]) for title, found in findings.items()]


def _title(settings: ClientSettings) -> str:
    addresses = ",".join(f"{host}:{port}" for host, port in settings.bootstrap)
    return f"cluster {settings.alias} ({addresses})"


def _flow_check(flow: Flow, seen: dict[ClientSettings, Seen], deadline: Deadline) -> FlowCheck:
    sides: dict[Side, Seen] = {}
    for side in _SIDES:
        settings = _settings(flow, side)
        if settings is not None:
            sides[side] = seen[settings]
    return FlowCheck(flow, sides, deadline)


def _unchecked() -> Finding:
    return note("flow", "Not checked: none of its clusters answers.")


def _flow_sections(checks: Sequence[FlowCheck], tell: Tell) -> list[Section]:
    found: list[list[Finding]] = []
    for one in checks:
        tell(f"Checking {one.flow.title} …")
        try:
            one.prepare()
            found.append(one.findings())
        except KafkaError as failure:
            found.append([failed("kafka", failure)])
    sections = [
        Section(one.flow.title, findings or [_unchecked()])
        for one, findings in zip(checks, found, strict=True)
    ]
    copying = [one.copying for one in checks if one.copying is not None]
    between = [
        *naming.loop_findings(copying),
        *naming.collision_findings(copying),
        *dead_letter_findings(copying),
    ]
    return [*sections, Section("flows together", between)] if between else sections
