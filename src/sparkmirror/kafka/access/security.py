"""How to get into a cluster: Java client properties in, one picklable value out, which shows no secrets.

Where sockets are wrapped is `tls`, where logins happen is `sasl`; both read their properties from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access.files import HERE, ClientFiles
from sparkmirror.veil import VEIL

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FAMILIES = ("ssl.", "sasl.")


@dataclass(frozen=True, slots=True)
class Security:
    """`security.protocol` and the `ssl.*` and `sasl.*` properties as they were given; travels to executors inside the plan."""

    protocol: str = "PLAINTEXT"
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    files: ClientFiles = HERE
    """Where the files are that the properties name."""

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def is_secured(self) -> bool:
        return self.uses_tls or self.uses_sasl

    def given(self) -> dict[str, str]:
        return dict(self.properties)


PLAINTEXT = Security()


def security_of(alias: str, properties: Mapping[str, str]) -> Security:
    """What Java client properties say of getting in; ConfigError for a protocol that there is not."""
    VEIL.learn(properties)  # whoever comes in with secrets passes here
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"Cluster {alias}: security.protocol={protocol} is not known.",
            f"Use one of {', '.join(PROTOCOLS)}.",
        )
    return Security(
        protocol,
        tuple(
            sorted(
                (name, value) for name, value in properties.items() if name.startswith(_FAMILIES)
            )
        ),
    )
