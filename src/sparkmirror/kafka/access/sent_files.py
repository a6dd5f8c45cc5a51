"""What executors need of a cluster's files: its client settings in; the files that they name, and their contents, out.

Read on the driver when a job is planned, so that executors need not have the driver's files.
"""

from __future__ import annotations

from collections.abc import Callable

from cryptography.exceptions import UnsupportedAlgorithm

from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access.files import ClientFiles, NamedFile, read_file
from sparkmirror.kafka.access.kerberos import kerberos_files
from sparkmirror.kafka.access.keystores import key_store, store_files, trust_store
from sparkmirror.kafka.access.login import Login, login_of
from sparkmirror.kafka.access.oauth import bearer_files
from sparkmirror.kafka.settings import ClientSettings

MOST_BYTES = 1 << 20
"""The largest file that travels with a plan. Java's own truststore, with all public CAs, has a fifth of that."""
_OF_LOGINS: dict[str, Callable[[Login], tuple[NamedFile, ...]]] = {
    "GSSAPI": kerberos_files,
    "OAUTHBEARER": bearer_files,
}


def named_files(settings: ClientSettings) -> tuple[NamedFile, ...]:
    """The files that a connection to this cluster reads."""
    security = settings.security
    found = store_files(security.given()) if security.uses_tls else ()
    if security.uses_sasl:
        login = login_of(settings)
        of_login = _OF_LOGINS.get(login.mechanism)
        found += () if of_login is None else of_login(login)
    return found


def read_files(settings: ClientSettings) -> ClientFiles:
    """The contents of these files; ConfigError, naming cluster, key and path, for one that executors could not use."""
    contents = {
        file.location: _content(settings.alias, file)
        for file in sorted(named_files(settings), key=lambda file: file.location)
    }
    files = ClientFiles(tuple(contents.items()))
    if settings.security.uses_tls:
        given = settings.security.given()
        try:
            trust_store(given, files)
            key_store(given, files)
        except ConfigError as error:
            raise ConfigError(f"Cluster {settings.alias}: {error.message}", error.remedy) from error
        except UnsupportedAlgorithm as error:
            raise ConfigError(
                f"Cluster {settings.alias}: a store named by ssl.* cannot be used: {error}.",
                "Make it with an algorithm that OpenSSL knows.",
            ) from error
    return files


def _content(alias: str, file: NamedFile) -> bytes:
    try:
        content = read_file(file.location)
    except OSError as error:
        raise ConfigError(
            f"Cluster {alias}: {file.key}: {file.location} cannot be read on the driver: {error.strerror or error}.",
            f"Correct {file.key}, or let the driver's user read the file: the driver sends it to the executors.",
        ) from error
    if len(content) > MOST_BYTES:
        raise ConfigError(
            f"Cluster {alias}: {file.key}: {file.location} has more than {MOST_BYTES >> 20} MiB, "
            "the most that the driver sends to the executors.",
            f"Let {file.key} name a smaller file: a truststore needs only the CAs of the brokers.",
        )
    return content
