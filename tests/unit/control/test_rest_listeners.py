"""Where a worker listens, what it is called, and https with certificates made for the test."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from certificates import Authority

from sparkmirror.control.forwarding import Passed, WorkerClient
from sparkmirror.control.rest.listeners import BoundListeners, local_address
from sparkmirror.control.rest.settings import rest_settings
from sparkmirror.control.rest.tls import client_context, server_context
from sparkmirror.errors import ConfigError, ConnectError
from tests.unit.control.rest_herder import MemoryHerder
from tests.unit.control.rest_serving import Client, serving

LOCAL = "http://127.0.0.1:0"


def _advertised(properties: Mapping[str, str]) -> tuple[str, list[int]]:
    with BoundListeners(rest_settings(properties, {})) as bound:
        return bound.advertised_url, [each.port for each in bound]


def test_what_a_worker_is_called() -> None:
    url, (port,) = _advertised({"listeners": LOCAL})
    assert url == f"http://127.0.0.1:{port}/"
    for everywhere in ("http://:0", "http://0.0.0.0:0"):
        url, (port,) = _advertised({"listeners": everywhere})
        assert url == f"http://{local_address()}:{port}/"
    url, _ = _advertised(
        {"listeners": LOCAL, "rest.advertised.host.name": "me", "rest.advertised.port": "99"}
    )
    assert url == "http://me:99/"
    both = {"listeners": f"https://127.0.0.1:0,{LOCAL}", "admin.listeners": LOCAL}
    url, (https, http, _) = _advertised(both)
    assert url == f"http://127.0.0.1:{http}/"
    url, (https, http, _) = _advertised({**both, "rest.advertised.listener": "https"})
    assert url == f"https://127.0.0.1:{https}/"
    url, (https,) = _advertised({"listeners": "https://127.0.0.1:0"})
    assert url == f"https://127.0.0.1:{https}/"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host speaks no IPv6")
def test_every_address() -> None:
    url, (port,) = _advertised({"listeners": "http://[::1]:0"})
    assert url == f"http://[::1]:{port}/"
    with serving({"listeners": "http://:0"}) as served:
        for host in ("127.0.0.1", "[::1]"):
            url = f"http://{host}:{served.call.port}"
            assert WorkerClient().send(url, Passed("GET", "/")).status == 200


def test_a_port_that_is_taken_frees_the_others() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        socket.create_server(("127.0.0.1", 0)) as free,
    ):
        port = free.getsockname()[1]
        free.close()
        listeners = f"http://127.0.0.1:{port},http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match="Cannot listen on"):
            BoundListeners(rest_settings({"listeners": listeners}, {}))
        BoundListeners(rest_settings({"listeners": f"http://127.0.0.1:{port}"}, {})).close()


def test_several_listeners() -> None:
    with serving({"listeners": f"{LOCAL},{LOCAL}"}) as served:
        for port in served.server.ports:
            assert Client(port)("GET", "/connectors").status == 200


@pytest.mark.parametrize(
    "properties",
    [
        {"listeners": ""},
        {"listeners": "8083"},
        {"listeners": "ftp://x:1"},
        {"listeners": "http://x:70000"},
        {"admin.listeners": "odd"},
        {"rest.advertised.listener": "ftp"},
        {"rest.extension.classes": "com.example.Extension"},
        {"response.http.headers.config": "odd"},
        {"response.http.headers.config": "setDate Expires: tomorrow"},
    ],
)
def test_wrong_settings(properties: Mapping[str, str]) -> None:
    with pytest.raises(ConfigError):
        rest_settings(properties, {})


# -- https ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with key.pem, cert.pem (for 127.0.0.1), both.pem, and locked.pem whose key has a password."""
    home = tmp_path_factory.mktemp("pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", home / "key.pem", "-out", home / "cert.pem", "-days", "2",
         "-subj", "/CN=worker", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    key, certificate = (home / "key.pem").read_text(), (home / "cert.pem").read_text()
    (home / "both.pem").write_text(key + certificate)
    subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", home / "key.pem", "-out", home / "enc.pem",
         "-passout", "pass:secret"],
        check=True, capture_output=True,
    )  # fmt: skip
    (home / "locked.pem").write_text((home / "enc.pem").read_text() + certificate)
    return home


def _client(pem: Path, *, with_key: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=pem / "cert.pem")
    if with_key:
        context.load_cert_chain(pem / "both.pem")
    return context


def _stores(pem: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem / "both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pem / "cert.pem"),
    }


@pytest.mark.parametrize("prefix", ["", "listeners.https."])
def test_https_beside_http(pem: Path, prefix: str) -> None:
    stores = {prefix + name: value for name, value in _stores(pem).items()}
    with serving({"listeners": f"https://127.0.0.1:0,{LOCAL}", **stores}) as served:
        https, http = served.server.ports
        created = Client(https, _client(pem))("PUT", "/connectors/c/config", {})
        assert created.headers["location"] == f"https://127.0.0.1:{https}/connectors/c"
        assert Client(http)("GET", "/connectors").json == ["c"]


def test_stores_of_the_jdk(tmp_path: Path) -> None:
    """A listener with a JKS keystore, which asks for certificates by a PKCS12 truststore, and a worker that shows one."""
    authority = Authority(tmp_path)
    stores = authority.keystore("worker", kind="JKS") | authority.truststore("PKCS12")
    properties = {"listeners": "https://127.0.0.1:0", **stores, "ssl.client.auth": "required"}
    with serving(properties) as served:
        url = f"https://127.0.0.1:{served.call.port}/"
        assert WorkerClient(client_context(stores)).send(url, Passed("GET", "/")).status == 200
        with pytest.raises(ConnectError):
            WorkerClient(client_context(authority.truststore("PKCS12"))).send(
                url, Passed("GET", "/")
            )


def test_inline_and_locked_keys(pem: Path) -> None:
    inline = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": (pem / "enc.pem").read_text(),
        "ssl.keystore.certificate.chain": (pem / "cert.pem").read_text(),
        "ssl.key.password": "secret",
    }
    locked = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem / "locked.pem"),
        "ssl.key.password": "secret",
    }
    for stores in (inline, locked):
        with serving({"listeners": "https://127.0.0.1:0", **stores}) as served:
            assert Client(served.call.port, _client(pem))("GET", "/").status == 200
    with pytest.raises(ConfigError, match="cannot be read"):
        server_context({**locked, "ssl.key.password": "wrong"})


def test_clients_that_must_show_a_certificate(pem: Path) -> None:
    properties = {"listeners": "https://127.0.0.1:0", **_stores(pem)}
    with serving({**properties, "ssl.client.auth": "required"}) as served:
        port = served.call.port
        assert Client(port, _client(pem, with_key=True))("GET", "/").status == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            Client(port, _client(pem))("GET", "/")
    with serving({**properties, "ssl.client.auth": "requested"}) as served:
        assert Client(served.call.port, _client(pem))("GET", "/").status == 200


def test_a_certificate_that_is_wanted_must_be_signed_by_somebody_named(pem: Path) -> None:
    """Without a truststore the authorities of the system would count: anybody gets a certificate from one of them."""
    stores = {name: value for name, value in _stores(pem).items() if "truststore" not in name}
    with pytest.raises(ConfigError, match=r"ssl\.client\.auth=required without a truststore"):
        server_context({**stores, "ssl.client.auth": "required"})
    server_context({**stores, "ssl.client.auth": "requested"})


def test_a_certificate_is_renewed_while_the_server_runs(tmp_path: Path) -> None:
    """Where it cannot be read, the one before is used."""
    before, after = (Authority(tmp_path / name) for name in ("before", "after"))
    stores = before.keystore("worker", kind="PKCS12")
    file = Path(stores["ssl.keystore.location"])
    with serving({"listeners": "https://127.0.0.1:0", **stores}) as served:
        url = f"https://127.0.0.1:{served.call.port}/"

        def is_trusted_by(authority: Authority) -> bool:
            client = WorkerClient(client_context(authority.truststore("PKCS12")))
            try:
                return client.send(url, Passed("GET", "/")).status == 200
            except ConnectError:
                return False

        assert is_trusted_by(before)
        renewed = Path(after.keystore("worker", kind="PKCS12")["ssl.keystore.location"])
        file.write_bytes(b"half")
        assert is_trusted_by(before)
        file.write_bytes(renewed.read_bytes())
        assert is_trusted_by(after)
        assert not is_trusted_by(before)


def test_workers_talk_over_https(pem: Path) -> None:
    properties = {
        "listeners": "https://127.0.0.1:0",
        **_stores(pem),
        "ssl.client.auth": "required",
    }
    with serving(properties) as leader:
        herder = MemoryHerder()
        herder.is_leader, herder.leader = False, leader.server.advertised_url
        with serving(properties, herder=herder) as follower:
            call = Client(follower.call.port, _client(pem, with_key=True))
            assert call("PUT", "/connectors/c/config", {}).status == 201
            assert list(leader.herder.configs) == ["c"]


def test_a_worker_that_is_not_who_it_should_be(pem: Path) -> None:
    with serving({"listeners": "https://127.0.0.1:0", **_stores(pem)}) as served:
        url = f"https://localhost:{served.call.port}/"
        with pytest.raises(ConnectError, match="IO Error"):
            WorkerClient(client_context(_stores(pem))).send(url, Passed("GET", "/"))
        unchecked = {**_stores(pem), "ssl.endpoint.identification.algorithm": ""}
        client = WorkerClient(client_context(unchecked))
        assert client.send(url, Passed("GET", "/")).status == 200
        with pytest.raises(ConnectError, match="IO Error"):
            WorkerClient(client_context({})).send(url, Passed("GET", "/"))


def test_the_loggers_may_have_a_certificate_of_their_own(pem: Path) -> None:
    stores = {f"admin.listeners.https.{name}": value for name, value in _stores(pem).items()}
    with serving({"admin.listeners": "https://127.0.0.1:0", **stores}) as served:
        admin = Client(served.server.ports[1], _client(pem))
        assert admin("GET", "/admin/loggers/root").status == 200


@pytest.mark.parametrize(
    ("stores", "message"),
    [
        ({}, "needs a key"),
        ({"ssl.keystore.location": "/x.jks"}, "no ssl.keystore.password"),
        ({"ssl.keystore.location": "/x", "ssl.keystore.type": "JCEKS"}, "JCEKS is not supported"),
        ({"ssl.keystore.location": "/no/such", "ssl.keystore.type": "PEM"}, "/no/such"),
        ({"ssl.keystore.key": "odd", "ssl.keystore.type": "PEM"}, "without ssl.keystore.cert"),
        ({"ssl.enabled.protocols": "SSLv3"}, "SSLv3"),
    ],
)
def test_wrong_stores(stores: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        server_context(stores)


def test_wrong_trust(pem: Path) -> None:
    (pem / "odd.pem").write_text("odd")
    for name, value, message in (
        ("location", str(pem / "odd.pem"), "no certificate in .*odd.pem"),
        ("location", "/no/such", "/no/such cannot be read"),
        ("certificates", "odd", "no certificate in ssl.truststore.certificates"),
    ):
        with pytest.raises(ConfigError, match=message):
            client_context({"ssl.truststore.type": "PEM", f"ssl.truststore.{name}": value})
    context = client_context(
        {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": (pem / "cert.pem").read_text(),
            "ssl.enabled.protocols": "TLSv1.3",
        }
    )
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_versions_are_limited(pem: Path) -> None:
    properties = {"listeners": "https://127.0.0.1:0", **_stores(pem)}
    with serving({**properties, "ssl.enabled.protocols": "TLSv1.2"}) as served:
        modern = _client(pem)
        modern.minimum_version = ssl.TLSVersion.TLSv1_3
        with pytest.raises(ssl.SSLError):
            Client(served.call.port, modern)("GET", "/")
        assert Client(served.call.port, _client(pem))("GET", "/").status == 200


def test_connections_count_before_their_handshake(pem: Path) -> None:
    """Whoever opens them and says nothing would take all file descriptors, those of Kafka's connections too."""
    properties = {
        "listeners": "https://127.0.0.1:0",
        **_stores(pem),
        "rest.max.connections.per.address": "5",
        "rest.connection.idle.timeout.ms": "1500",
    }
    with serving(properties) as served, ExitStack() as stack:
        address = "127.0.0.1", served.call.port
        clients = [stack.enter_context(socket.create_connection(address, 20)) for _ in range(20)]
        assert [_is_closed_soon(client) for client in clients].count(True) == 15
        deadline = time.monotonic() + 10
        while True:  # those who have said nothing for long are gone, and count no more
            with contextlib.suppress(OSError):
                assert Client(served.call.port, _client(pem))("GET", "/").status == 200
                break
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _is_closed_soon(client: socket.socket) -> bool:
    client.settimeout(0.2)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
