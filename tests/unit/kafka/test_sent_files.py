"""Files that client properties name, sent along: which these are, what is done without the originals, and what goes wrong."""

from __future__ import annotations

import base64
import json
import os
import pickle
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from certificates import Authority, Kind

from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access.files import HERE, ClientFiles, file_in_memory, read_file
from sparkmirror.kafka.access.kerberos import _store
from sparkmirror.kafka.access.login import MODULES, login_of
from sparkmirror.kafka.access.oidc import oidc_source, provider_context
from sparkmirror.kafka.access.sent_files import MOST_BYTES, named_files, read_files
from sparkmirror.kafka.access.tls import client_tls
from sparkmirror.kafka.denials import principal_of
from sparkmirror.kafka.settings import ClientSettings, client_settings

URL = "sasl.oauthbearer.token.endpoint.url"
UNSIGNED = "eyJhbGciOiJub25lIn0"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stores"))


def settings(given: Mapping[str, str]) -> ClientSettings:
    return client_settings("A", {"bootstrap.servers": "b:9092", **given})


def sasl(mechanism: str, options: str, **more: str) -> ClientSettings:
    return settings(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{MODULES[mechanism][0]} required {options};",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )


def sent(client: ClientSettings) -> ClientSettings:
    """As it arrives on an executor."""
    packed = replace(client, security=replace(client.security, files=read_files(client)))
    arrived: ClientSettings = pickle.loads(pickle.dumps(packed))  # noqa: S301 - as Spark hands it over
    return arrived


# -- which ----------------------------------------------------------------------------------------

STORES = {"ssl.truststore.location": " /t.jks ", "ssl.keystore.location": "/k.jks"}


@pytest.mark.parametrize(
    ("client", "files"),
    [
        (settings(STORES), []),  # nobody reads them
        (
            settings(STORES | {"security.protocol": "SSL"}),
            [("ssl.truststore.location", "/t.jks"), ("ssl.keystore.location", "/k.jks")],
        ),
        (sasl("PLAIN", 'username="u" password="p" keyTab="/k"'), []),
        (
            sasl("GSSAPI", 'useKeyTab="true" keyTab="file:/k"'),
            [("keyTab in sasl.jaas.config", "/k")],
        ),
        (sasl("GSSAPI", 'keyTab="/k"'), []),  # it does not count without useKeyTab
        (
            sasl("GSSAPI", 'ticketCache="FILE:/c"'),
            [("ticketCache in sasl.jaas.config", "/c")],
        ),
        (sasl("GSSAPI", 'ticketCache="KEYRING:user"'), []),
        (sasl("GSSAPI", 'ticketCache="MEMORY:x"'), []),
        (
            sasl("OAUTHBEARER", "", **{URL: "file:///run/to%20ken"}),
            [(URL, "/run/to ken")],
        ),
        (
            sasl("OAUTHBEARER", 'ssl.truststore.location="/p.pem"', **{URL: "https://p/t"}),
            [("ssl.truststore.location in sasl.jaas.config", "/p.pem")],
        ),
        (sasl("OAUTHBEARER", 'ssl.truststore.location="/p.pem"', **{URL: "http://p/t"}), []),
        (sasl("OAUTHBEARER", 'unsecuredLoginStringClaim_sub="x"'), []),
        (
            sasl("OAUTHBEARER", "", sasl_login_callback_handler_class="my.Tokens"),
            [],
        ),
        (
            settings(
                {
                    "security.protocol": "SASL_SSL",
                    "ssl.truststore.location": "/t.jks",
                    "sasl.jaas.config": f'{MODULES["GSSAPI"][0]} required useKeyTab=true keyTab="/k";',
                }
            ),
            [("ssl.truststore.location", "/t.jks"), ("keyTab in sasl.jaas.config", "/k")],
        ),
    ],
)
def test_files_that_a_connection_reads(
    client: ClientSettings, files: list[tuple[str, str]]
) -> None:
    assert [(file.key, file.location) for file in named_files(client)] == files


def test_only_a_ticket_cache_is_not_followed() -> None:
    (cache,) = named_files(sasl("GSSAPI", 'ticketCache="/c"'))
    (keytab,) = named_files(sasl("GSSAPI", 'useKeyTab="true" keyTab="/k"'))
    assert (cache.is_followed, keytab.is_followed) == (False, True)


# -- without the originals ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PEM", "JKS"])
def test_stores_that_are_gone_where_they_were_sent(authority: Authority, kind: Kind) -> None:
    alice = authority.issue(f"alice-{kind}")
    given = authority.truststore(kind) | alice.store(kind).as_keystore()
    client = settings({"security.protocol": "SSL", **given})
    arrived = sent(client)
    there = Path(given["ssl.truststore.location"]), Path(given["ssl.keystore.location"])
    for file in there:
        file.rename(f"{file}.away")
    try:
        tls = client_tls("A", arrived.security)
        assert tls.context.get_ca_certs(binary_form=True)
        assert f"CN=alice-{kind}" in tls.ours
        assert principal_of(arrived.security) == f"User:CN=alice-{kind}"
    finally:
        for file in there:
            Path(f"{file}.away").rename(file)


def test_what_is_sent_later_replaces_what_was_sent_before(tmp_path: Path) -> None:
    """In a Python worker that runs one task after the other."""
    path = tmp_path / "trust.pem"
    given = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}
    client = settings({"security.protocol": "SSL", **given})
    found = []
    for name in ("first", "second"):
        Authority(tmp_path / name, name).write_trust(path, "PEM")
        arrived = sent(client)
        found.append(client_tls("A", arrived.security).context.get_ca_certs())
        assert client_tls("A", arrived.security) is client_tls("A", arrived.security)
    assert found[0] != found[1]


def test_a_token_and_the_trust_in_a_provider(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "token"
    claims = json.dumps({"sub": "me", "exp": time.time() + 60})
    body = base64.urlsafe_b64encode(claims.encode()).decode().rstrip("=")
    path.write_text(f"{UNSIGNED}.{body}.x\n")
    arrived = sent(sasl("OAUTHBEARER", "", **{URL: path.as_uri()}))
    path.unlink()
    assert oidc_source(login_of(arrived)).fetch("b", patient=False).principal == "me"

    trust = tmp_path / "provider.pem"
    authority.write_trust(trust, "PEM")
    options = (
        f'ssl.truststore.location="{trust}" ssl.truststore.type="PEM" clientId="i" clientSecret="s"'
    )
    arrived = sent(sasl("OAUTHBEARER", options, **{URL: "https://127.0.0.1/token"}))
    trust.unlink()
    assert provider_context(login_of(arrived)).get_ca_certs()


@pytest.mark.parametrize("option", ["keyTab", "ticketCache"])
def test_a_keytab_and_a_ticket_cache_are_files_for_as_long_as_they_are_needed(
    tmp_path: Path, option: str
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"\x05\x02keys")
    client = sasl("GSSAPI", f'useKeyTab="{option == "keyTab"}" {option}="{path}"')
    entry = "client_keytab" if option == "keyTab" else "ccache"
    with _store(login_of(client)) as store:
        assert store[entry] == str(path)  # on a local master it stays where it is
    arrived = sent(client)
    path.unlink()
    with _store(login_of(arrived)) as store:
        made = Path(store[entry])
        assert made.read_bytes() == b"\x05\x02keys"
        assert made.parent == Path("/proc/self/fd")
    assert not made.exists()


def test_a_file_in_memory_can_be_written(tmp_path: Path) -> None:
    """As Kerberos does, which adds tickets to its cache."""
    with file_in_memory(b"a" * 100_000) as path:
        with Path(path).open("ab") as again:
            again.write(b"b")
        assert Path(path).read_bytes() == b"a" * 100_000 + b"b"


def test_contents_are_not_shown(authority: Authority) -> None:
    client = sent(settings({"security.protocol": "SSL", **authority.truststore("PEM")}))
    assert client.security.files.sent
    assert "CERTIFICATE" not in repr(client)
    assert repr(client.security.files) == "ClientFiles()"


def test_a_file_that_was_not_sent_is_read_here(tmp_path: Path) -> None:
    path = tmp_path / "here"
    path.write_bytes(b"here")
    files = ClientFiles((("/other", b"sent"),))
    assert (files.read(str(path)), files.read("/other")) == (b"here", b"sent")
    assert files.stamp("/other") == b"sent"
    assert files.stamp(str(tmp_path / "none")) is None


# -- what goes wrong ------------------------------------------------------------------------------


def test_files_that_cannot_be_sent(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    client = sasl("GSSAPI", f'useKeyTab="true" keyTab="{path}"')
    missing = rf"Cluster A: keyTab in sasl\.jaas\.config: {path} cannot be read on the driver: No such file"
    with pytest.raises(ConfigError, match=missing) as caught:
        read_files(client)
    assert "the driver sends it to the executors" in caught.value.remedy
    path.mkdir()
    with pytest.raises(ConfigError, match="Is a directory"):
        read_files(client)
    path.rmdir()
    path.write_bytes(b"x" * (MOST_BYTES + 1))
    with pytest.raises(ConfigError, match=f"{path} has more than 1 MiB"):
        read_files(client)
    path.write_bytes(b"x" * MOST_BYTES)
    assert read_files(client).sent == ((str(path), b"x" * MOST_BYTES),)


def test_a_store_that_cannot_be_opened_is_not_sent(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "trust"
    given = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}
    client = settings({"security.protocol": "SSL", **given})
    path.write_text(authority.pem()[:100])
    with pytest.raises(ConfigError, match="Cluster A: "):
        read_files(client)


def test_what_a_library_opens_by_itself_is_a_file(tmp_path: Path) -> None:
    """Such as a keytab: a config says where it is."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for location in (str(pipe), "/dev/zero", str(tmp_path)):
        with pytest.raises(OSError), HERE.path(location):
            pass
    (tmp_path / "keytab").write_bytes(b"k")
    with HERE.path(str(tmp_path / "keytab")) as path:
        assert Path(path).read_bytes() == b"k"


def test_a_file_is_read_up_to_a_size_whatever_it_says_of_itself() -> None:
    """Those of /proc say that they are empty."""
    assert len(read_file("/proc/self/maps")) <= 16 << 20
