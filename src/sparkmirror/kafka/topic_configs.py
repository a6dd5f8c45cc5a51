"""Topic properties on a cluster: names in, what is set out; alterations in, what could not be done out.

Both are sent in parts, so that thousands of topics make no giant request, and each topic fails by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sparkmirror.errors import BrokerError
from sparkmirror.kafka import messages
from sparkmirror.kafka.admin import ConfigEntry
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.denials import needs

_TOPIC_RESOURCE = 2
_PART = 500
_OPERATIONS = {"SET": 0, "DELETE": 1}


@dataclass(frozen=True, slots=True)
class Alteration:
    """One property of one topic: set to a value, or no longer set for this topic (the cluster's default counts again)."""

    name: str
    operation: Literal["SET", "DELETE"]
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Described:
    """Properties of the topics that could be read, and why others could not. Topics that are gone are in neither."""

    configs: dict[str, list[ConfigEntry]]
    errors: dict[str, BrokerError]


def describe(cluster: Cluster, names: Sequence[str]) -> Described:
    """All properties of these topics, with where each value comes from."""
    found = Described({}, {})
    for part in _parts(names):
        _describe(cluster, part, found)
    return found


def _describe(cluster: Cluster, names: Sequence[str], found: Described) -> None:
    request = messages.DescribeConfigsRequest
    answer = cluster.call_any(
        request(
            resources=[
                request.DescribeConfigsResource(
                    resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None
                )
                for name in names
            ],
            include_synonyms=False,
            include_documentation=False,
        )
    )
    for result in answer.results:
        name = result.resource_name
        if result.error_code == messages.NONE:
            found.configs[name] = [
                ConfigEntry(c.name, c.value, c.read_only, c.is_sensitive, c.config_source)
                for c in result.configs
            ]
        elif result.error_code != messages.UNKNOWN_TOPIC_OR_PARTITION:
            found.errors[name] = messages.broker_error(
                result.error_code,
                f"Reading the configs of topic {name} on {cluster.settings}",
                result.error_message,
                access=needs("DescribeConfigs", "topic", name, cluster.settings.security),
            )


def alter(
    cluster: Cluster, alterations: Mapping[str, Sequence[Alteration]]
) -> dict[str, BrokerError | None]:
    """Alter the properties of topics; per topic None for success or the broker's error.

    A broker that is too old raises BrokerError UNSUPPORTED_VERSION.
    """
    outcomes: dict[str, BrokerError | None] = {}
    for part in _parts(list(alterations)):
        request = _alter_request({name: alterations[name] for name in part})
        for result in cluster.call_controller(request).responses:
            outcomes[result.resource_name] = (
                None
                if result.error_code == messages.NONE
                else messages.broker_error(
                    result.error_code,
                    f"Altering the configs of topic {result.resource_name} on {cluster.settings}",
                    result.error_message,
                    access=needs(
                        "AlterConfigs", "topic", result.resource_name, cluster.settings.security
                    ),
                )
            )
    return outcomes


def _alter_request(alterations: Mapping[str, Sequence[Alteration]]) -> Any:
    request = messages.IncrementalAlterConfigsRequest
    resource = request.AlterConfigsResource
    return request(
        resources=[
            resource(
                resource_type=_TOPIC_RESOURCE,
                resource_name=topic,
                configs=[
                    resource.AlterableConfig(
                        name=one.name,
                        config_operation=_OPERATIONS[one.operation],
                        value=one.value,
                    )
                    for one in wanted
                ],
            )
            for topic, wanted in alterations.items()
        ],
        validate_only=False,
    )


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _PART):
        yield names[start : start + _PART]
