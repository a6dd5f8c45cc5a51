"""The settings of the REST server: worker properties and the environment come in, typed settings go out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkmirror.config.keys import parse, require
from sparkmirror.config.keys_rest import REST_KEYS
from sparkmirror.config.rest import BASIC_AUTH, RestConfig, rest_problems

from .basic_auth import jaas_path
from .headers import check_rules


@dataclass(frozen=True, slots=True)
class RestSettings:
    config: RestConfig
    jaas_file: Path | None = None
    """Names the users if basic authentication is on."""
    request_timeout: float = 90.0
    """Seconds after which a request that nobody has decided is answered with an error."""
    health_timeout: float = 10.0

    @property
    def has_login(self) -> bool:
        """Whether who calls must say who he is."""
        return BASIC_AUTH in self.config.extension_classes


def rest_settings(properties: Mapping[str, str], environment: Mapping[str, str]) -> RestSettings:
    """The settings in a worker's properties; ConfigError names what is wrong with them.

    The environment may name a JAAS file as it does for a Java worker.
    """
    require(rest_problems(properties))
    config = RestConfig.build(parse(REST_KEYS, properties), properties)
    check_rules(config.response_headers)
    return RestSettings(config, jaas_path(properties, environment))
