"""How to reach a cluster: Java client properties in, one picklable value out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access.security import PLAINTEXT, Security, security_of


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What every connection to one cluster needs; travels to the executors inside the plan."""

    alias: str
    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "sparkmirror"
    client_rack: str = ""
    request_timeout: float = 30.0
    connect_timeout: float = 10.0
    retry_backoff: float = 0.1
    retry_backoff_max: float = 1.0
    reconnect_backoff: float = 0.1
    reconnect_backoff_max: float = 10.0
    metadata_max_age: float = 300.0
    send_buffer: int = -1
    receive_buffer: int = -1
    security: Security = PLAINTEXT

    def __str__(self) -> str:
        addresses = ",".join(f"{host}:{port}" for host, port in self.bootstrap)
        return f"cluster {self.alias} ({addresses})"


def client_settings(
    alias: str, properties: Mapping[str, str], client_id: str = "sparkmirror"
) -> ClientSettings:
    """Settings from Java client properties (`bootstrap.servers`, `request.timeout.ms`, …)."""

    def seconds(key: str, default: float) -> float:
        return _number(alias, properties, key, default * 1000) / 1000

    return ClientSettings(
        alias=alias,
        bootstrap=parse_bootstrap(alias, properties.get("bootstrap.servers", "")),
        client_id=properties.get("client.id") or client_id,
        client_rack=properties.get("client.rack", ""),
        request_timeout=seconds("request.timeout.ms", 30.0),
        connect_timeout=seconds("socket.connection.setup.timeout.ms", 10.0),
        retry_backoff=seconds("retry.backoff.ms", 0.1),
        retry_backoff_max=seconds("retry.backoff.max.ms", 1.0),
        reconnect_backoff=seconds("reconnect.backoff.ms", 0.1),
        reconnect_backoff_max=seconds("reconnect.backoff.max.ms", 10.0),
        metadata_max_age=seconds("metadata.max.age.ms", 300.0),
        send_buffer=int(_number(alias, properties, "send.buffer.bytes", -1)),
        receive_buffer=int(_number(alias, properties, "receive.buffer.bytes", -1)),
        security=security_of(alias, properties),
    )


def parse_bootstrap(alias: str, value: str) -> tuple[tuple[str, int], ...]:
    """`host:port,host:port`, with `[::1]:9092` for IPv6."""
    addresses = []
    for item in filter(None, (part.strip() for part in value.split(","))):
        host, colon, port = item.rpartition(":")
        if not colon or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(
                f"Cluster {alias}: '{item}' in bootstrap.servers is not host:port.",
                "Write e.g. broker1:9092,broker2:9092.",
            )
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ConfigError(
            f"Cluster {alias} has no bootstrap.servers.",
            f"Set {alias}.bootstrap.servers=host:port.",
        )
    return tuple(addresses)


def _number(alias: str, properties: Mapping[str, str], key: str, default: float) -> float:
    value = properties.get(key)
    if value is None:
        return default
    try:
        return float(int(value.strip()))
    except ValueError:
        raise ConfigError(
            f"Cluster {alias}: {key}={value} is not a whole number.", f"Correct {key}."
        ) from None
