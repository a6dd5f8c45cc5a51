"""Secrets in configs: properties come in, the same without passwords go out, for logs and pages.

`GET /connectors/{name}/config` shows what the user wrote, passwords too, as Connect does: those who
do not want that use config providers.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkmirror.secret_names import HIDDEN, is_secret

__all__ = ["is_secret", "masked"]


def masked(properties: Mapping[str, str | None]) -> dict[str, str | None]:
    """`properties` with `[hidden]` in the place of secrets."""
    return {name: HIDDEN if is_secret(name) else value for name, value in properties.items()}
