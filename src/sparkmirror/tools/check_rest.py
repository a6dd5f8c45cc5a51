"""A connector's config from a running worker: its address and the connector's name in, the config as it was written out."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request

from sparkmirror.errors import ConfigError, ConnectionFailed


def connector_config(url: str, name: str, timeout: float) -> dict[str, str]:
    """What `GET /connectors/NAME/config` answers; references to secrets stay references.

    A user and password in the address (http://user:password@worker:8083) log in.
    """
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(
            f"--url {without_login(url)} is no http address.", "Write e.g. http://worker:8083."
        )
    headers = _login(url)
    url = without_login(url)
    address = f"{url.rstrip('/')}/connectors/{urllib.parse.quote(name, safe='')}/config"
    request = urllib.request.Request(address, headers=headers)  # noqa: S310 - checked
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310 - checked
            document = json.load(answer)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404:
            raise ConfigError(
                f"The worker at {url} has no connector {name}.",
                f"GET {url.rstrip('/')}/connectors lists those it has.",
            ) from error
        raise ConnectionFailed(
            f"The worker at {url} answers {error.code} to {address}.", "See its log."
        ) from error
    except (OSError, ValueError) as error:
        raise ConnectionFailed(
            f"The worker at {url} cannot be asked: {error}.", "Check --url and that it is up."
        ) from error
    return {str(key): str(value) for key, value in document.items()}


def without_login(url: str) -> str:
    """An address that may be shown."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _login(url: str) -> dict[str, str]:
    parts = urllib.parse.urlsplit(url)
    if parts.username is None:
        return {}
    user, password = (urllib.parse.unquote(each or "") for each in (parts.username, parts.password))
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
