"""Topic properties on a cluster: names in, what is set out; alterations in, what could not be done out.

Both are sent in parts, so that thousands of topics make no giant request, and each topic fails by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sparkmirror.errors import BrokerError
from sparkmirror.kafka import messages
from sparkmirror.kafka.admin import ConfigEntry
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.denials import needs
from sparkmirror.kafka.request_parts import Bound, ask_in_parts

_TOPIC_RESOURCE = 2
_DESCRIPTION = Bound(500)
_ALTERATION = Bound(500, 5000)  # alterations: a controller takes 10,000 in one request
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
    """All properties of these topics, with where each value comes from.

    Where brokers do not offer DescribeConfigs, that is the error of each topic.
    """

    def ask(part: Sequence[str]) -> Sequence[Any]:
        found: Sequence[Any] = cluster.call_any(_describe_request(part)).results
        return found

    found = Described({}, {})
    try:
        for _, rows in ask_in_parts(names, _DESCRIPTION, ask):
            for row in rows:
                _enter(cluster, row, found)
    except BrokerError as error:
        if error.code != messages.UNSUPPORTED_VERSION:
            raise
        return Described({}, dict.fromkeys(names, error))
    return found


def _describe_request(names: Sequence[str]) -> Any:
    request = messages.DescribeConfigsRequest
    return request(
        resources=[
            request.DescribeConfigsResource(
                resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None
            )
            for name in names
        ],
        include_synonyms=False,
        include_documentation=False,
    )


def _enter(cluster: Cluster, row: Any, found: Described) -> None:
    name = row.resource_name
    if row.error_code == messages.NONE:
        found.configs[name] = [
            ConfigEntry(c.name, c.value, c.read_only, c.is_sensitive, c.config_source)
            for c in row.configs
        ]
    elif row.error_code != messages.UNKNOWN_TOPIC_OR_PARTITION:
        found.errors[name] = messages.broker_error(
            row.error_code,
            f"Reading the configs of topic {name} on {cluster.settings}",
            row.error_message,
            access=needs("DescribeConfigs", "topic", name, cluster.settings.security),
        )


def alter(
    cluster: Cluster, alterations: Mapping[str, Sequence[Alteration]]
) -> dict[str, BrokerError | None]:
    """Alter the properties of topics; per topic None for success or the broker's error.

    A broker that is too old raises BrokerError UNSUPPORTED_VERSION.
    """

    def ask(part: Sequence[str]) -> Sequence[Any]:
        request = _alter_request({name: alterations[name] for name in part})
        found: Sequence[Any] = cluster.call_controller(request).responses
        return found

    def weigh(name: str) -> int:
        return len(alterations[name])

    return {
        row.resource_name: None
        if row.error_code == messages.NONE
        else messages.broker_error(
            row.error_code,
            f"Altering the configs of topic {row.resource_name} on {cluster.settings}",
            row.error_message,
            access=needs("AlterConfigs", "topic", row.resource_name, cluster.settings.security),
        )
        for _, rows in ask_in_parts(list(alterations), _ALTERATION, ask, weigh)
        for row in rows
    }


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
