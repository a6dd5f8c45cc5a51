"""Stores that the JDK's keytool has written, and PEM, as Java's clients are given them."""

from __future__ import annotations

import base64
import logging
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from certificates import KEY_PASSWORD, KINDS, PASSWORD, Authority, Identity, Kind, keytool
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access.keystores import key_store, trust_store
from sparkmirror.kafka.access.pem import Block, blocks, private_key


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def alice(authority: Authority) -> Identity:
    """Signed by a CA that is signed by the root: a chain of two."""
    return authority.intermediate("middle").issue("alice")


@pytest.mark.parametrize("what", ["device", "pipe", "huge"])
def test_only_files_of_a_sensible_size_are_read(tmp_path: Path, what: str) -> None:
    """Whoever may send a config names them: one without end, or one that nobody writes to, must not hold the worker up."""
    file = tmp_path / what
    if what == "pipe":
        os.mkfifo(file)
    elif what == "huge":
        file.touch()
        os.truncate(file, 1 << 40)
    else:
        file = Path("/dev/zero")
    given = {"ssl.truststore.location": str(file), "ssl.truststore.password": "x"}
    with pytest.raises(ConfigError, match="Larger than" if what == "huge" else "regular file"):
        trust_store(given)


def der(authority: Authority) -> bytes:
    return authority.certificate.public_bytes(Encoding.DER)


def check_key(given: Mapping[str, str], identity: Identity) -> None:
    store = key_store(given)
    assert store is not None
    assert store.chain == tuple(each.public_bytes(Encoding.DER) for each in identity.chain)
    loaded = load_pem_private_key(store.key, None)
    made = loaded.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    assert made == identity.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    assert "PRIVATE" not in repr(store)


# -- what keytool wrote ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_truststores(authority: Authority, kind: Kind) -> None:
    store = trust_store(authority.truststore(kind))
    assert store is not None
    assert store.certificates == (der(authority),)


@pytest.mark.parametrize("kind", KINDS)
def test_keystores(alice: Identity, kind: Kind) -> None:
    check_key(alice.store(kind).as_keystore(), alice)


@pytest.mark.parametrize("kind", ["JKS", "PEM"])
def test_a_key_with_a_password_of_its_own(alice: Identity, kind: Kind) -> None:
    given = alice.store(kind, locked_key=True).as_keystore()
    check_key(given, alice)
    for wrong in ({"ssl.key.password": "wrong"}, {"ssl.key.password": ""}):
        with pytest.raises(ConfigError, match=r"ssl\.key\.password"):
            key_store(given | wrong)


def test_a_declared_type_that_is_the_other_one(authority: Authority, alice: Identity) -> None:
    binary: tuple[tuple[Kind, Kind], ...] = (("JKS", "PKCS12"), ("PKCS12", "JKS"))
    for kind, other in binary:
        trust = authority.truststore(kind) | {"ssl.truststore.type": other}
        found = trust_store(trust)
        assert found is not None and found.certificates == (der(authority),)
        keys = alice.store(kind).as_keystore() | {"ssl.keystore.type": other}
        check_key(keys, alice)


def test_jks_is_the_default(authority: Authority) -> None:
    given = authority.truststore("JKS")
    del given["ssl.truststore.type"]
    assert trust_store(given) is not None


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_wrong_passwords(authority: Authority, alice: Identity, kind: Kind) -> None:
    with pytest.raises(ConfigError) as caught:
        trust_store(authority.truststore(kind) | {"ssl.truststore.password": "wrong"})
    assert "ssl.truststore.password is wrong" in str(caught.value)
    assert str(authority.store(kind).path) in caught.value.message
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.password is wrong"):
        key_store(alice.store(kind).as_keystore() | {"ssl.keystore.password": "wrong"})


def test_a_jks_truststore_without_a_password_is_read_unchecked(authority: Authority) -> None:
    given = authority.truststore("JKS")
    del given["ssl.truststore.password"]
    assert trust_store(given) is not None


def test_keys_in_a_truststore_make_their_certificates_trusted(alice: Identity) -> None:
    for kind in KINDS[:2]:
        location = alice.store(kind).path
        found = trust_store(
            {"ssl.truststore.location": str(location), "ssl.truststore.password": PASSWORD}
        )
        assert found is not None
        assert found.certificates[0] == alice.chain[0].public_bytes(Encoding.DER)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_one_store_for_both(
    authority: Authority, alice: Identity, kind: Kind, tmp_path: Path
) -> None:
    """A key, and beside it the CA that is trusted: as a truststore it trusts the CA, as a keystore it has the key."""
    path = tmp_path / f"both.{kind.lower()}"
    path.write_bytes(alice.store(kind).path.read_bytes())
    pem = tmp_path / "ca.pem"
    pem.write_text(authority.pem(), encoding="ascii")
    keytool(
        *("-importcert", "-noprompt", "-alias", "root-ca", "-file", str(pem)),
        *("-keystore", str(path), "-storepass", PASSWORD),
    )
    given = {"location": str(path), "password": PASSWORD}
    trusted = trust_store({f"ssl.truststore.{name}": value for name, value in given.items()})
    assert trusted is not None
    assert der(authority) in trusted.certificates
    assert alice.chain[1].public_bytes(Encoding.DER) not in trusted.certificates
    store = key_store({f"ssl.keystore.{name}": value for name, value in given.items()})
    assert store is not None
    assert store.chain[0] == alice.chain[0].public_bytes(Encoding.DER)


def test_old_encryption_of_pkcs12(authority: Authority, alice: Identity, tmp_path: Path) -> None:
    """As keytool wrote it up to Java 16: RC2 and triple DES."""
    path = tmp_path / "old.p12"
    source = alice.store("PKCS12").path
    keytool(
        "-J-Dkeystore.pkcs12.legacy",
        *("-importkeystore", "-srckeystore", str(source), "-srcstorepass", PASSWORD),
        *("-destkeystore", str(path), "-deststoretype", "PKCS12", "-deststorepass", PASSWORD),
    )
    check_key({"ssl.keystore.location": str(path), "ssl.keystore.password": PASSWORD}, alice)


# -- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_is_cut_off(authority: Authority, kind: Kind, tmp_path: Path) -> None:
    whole = authority.store(kind).path.read_bytes()
    part = tmp_path / "part"
    for length in (0, 3, 100, len(whole) // 2, len(whole) - 20):
        part.write_bytes(whole[:length])
        with pytest.raises(ConfigError) as caught:
            trust_store(authority.truststore(kind) | {"ssl.truststore.location": str(part)})
        assert str(part) in str(caught.value)


def test_a_jks_store_without_a_password_that_is_cut_off(
    authority: Authority, tmp_path: Path
) -> None:
    whole = authority.store("JKS").path.read_bytes()
    part = tmp_path / "part"
    for length in (4, 12, 60, len(whole) - 21):
        part.write_bytes(whole[:length])
        with pytest.raises(ConfigError):
            trust_store({"ssl.truststore.location": str(part)})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xce\xce\xce\xce\x00\x00\x00\x02", "JCEKS"),
        (b"-----BEGIN CERTIFICATE-----", "but PEM"),
        (b"hello", "neither JKS nor PKCS12"),
    ],
)
def test_files_that_are_something_else(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "store"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        trust_store({"ssl.truststore.location": str(file), "ssl.truststore.password": "x"})


def test_a_binary_store_declared_as_pem(authority: Authority) -> None:
    location = str(authority.store("JKS").path)
    with pytest.raises(ConfigError, match="declared as PEM"):
        trust_store({"ssl.truststore.location": location, "ssl.truststore.type": "PEM"})


# -- PEM ----------------------------------------------------------------------------------------


def spaced(text: str) -> str:
    """On one line, as properties files hold it."""
    return text.replace("\n", " ")


def escaped(text: str) -> str:
    return text.replace("\n", "\\n")


def tight(text: str) -> str:
    return text.replace("\n", "")


@pytest.mark.parametrize("form", [str, spaced, escaped, tight])
def test_pem_in_the_properties(authority: Authority, alice: Identity, form: type[str]) -> None:
    given = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": form(authority.pem()),
        "ssl.keystore.type": "pem",
        "ssl.keystore.certificate.chain": form(alice.chain_pem()),
        "ssl.keystore.key": form(alice.key_pem()),
    }
    found = trust_store(given)
    assert found is not None and found.certificates == (der(authority),)
    check_key(given, alice)
    locked = {"ssl.keystore.key": form(alice.key_pem("p")), "ssl.key.password": " p "}
    check_key(given | locked, alice)


def test_text_around_pem_and_several_certificates(authority: Authority, alice: Identity) -> None:
    text = f"# subject=one\n{authority.pem()}\nissuer: two\n{alice.chain_pem()}"
    found = trust_store({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text})
    assert found is not None and len(found.certificates) == 3


def test_a_chain_in_another_order(authority: Authority, alice: Identity) -> None:
    leaf, middle = (each.public_bytes(Encoding.PEM).decode() for each in alice.chain)
    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": middle + leaf,
        "ssl.keystore.key": alice.key_pem(),
    }
    check_key(given, alice)


def test_an_ec_key_in_its_own_format(authority: Authority) -> None:
    bob = authority.issue("bob", key="ec")
    assert isinstance(bob.key, ec.EllipticCurvePrivateKey)
    own = bob.key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    ).decode()
    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": bob.chain_pem(),
        "ssl.keystore.key": own,
    }
    check_key(given, bob)


def test_a_key_of_somebody_else(authority: Authority, alice: Identity) -> None:
    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": authority.issue("bob").chain_pem(),
        "ssl.keystore.key": alice.key_pem(),
    }
    with pytest.raises(ConfigError, match="do not belong together"):
        key_store(given)


# -- what Java refuses too ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ssl.truststore.password": "x"}, "without ssl.truststore.location"),
        ({"ssl.truststore.type": "BKS"}, "ssl.truststore.type=BKS is not supported"),
        ({"ssl.truststore.certificates": "x"}, "ssl.truststore.type is JKS"),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/x",
             "ssl.truststore.password": "x"},
            "has no password",
        ),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/x",
             "ssl.truststore.certificates": "x"},
            "Both ssl.truststore.location and",
        ),
        ({"ssl.truststore.location": "/no/such"}, "/no/such cannot be read: No such file"),
    ],
)  # fmt: skip
def test_truststore_settings_that_do_not_fit(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        trust_store(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ssl.keystore.password": "x"}, "without ssl.keystore.location"),
        ({"ssl.keystore.location": "/x"}, "no ssl.keystore.password"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": "x"}, "without ssl.keystore.certificate"),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "x"},
            "without ssl.keystore.key",
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/x",
             "ssl.keystore.password": "x"},
            "ssl.key.password",
        ),
    ],
)  # fmt: skip
def test_keystore_settings_that_do_not_fit(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        key_store(given)


def test_nothing_given() -> None:
    assert trust_store({}) is None
    assert key_store({"ssl.keystore.location": " ", "ssl.key.password": KEY_PASSWORD}) is None


def test_a_store_without_what_it_is_for(authority: Authority) -> None:
    trust = authority.store("JKS")
    with pytest.raises(ConfigError, match="holds no private key"):
        key_store(trust.as_keystore())


def test_our_expired_certificate_is_only_a_warning(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    old = authority.issue("old", valid=(-30, -1))
    with caplog.at_level(logging.WARNING):
        found = key_store(old.store("PEM").as_keystore())
    assert found is not None
    assert str(found).startswith("CN=old, issued by CN=test-ca, valid until ")
    assert "Our certificate in" in caplog.text and "has expired on" in caplog.text


# -- keys of others ---------------------------------------------------------------------------------


def locked(folder: Path, *options: str) -> str:
    """A key that openssl has encrypted."""
    plain = ec.generate_private_key(ec.SECP256R1())
    file = folder / "key.pem"
    file.write_bytes(plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    command = ["openssl", "pkcs8", "-topk8", "-in", str(file), "-passout", "pass:secret", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("options", [["-v2", "aes256"], ["-v1", "PBE-SHA1-3DES"]])
def test_a_key_whose_password_takes_too_long_to_try_is_refused(
    tmp_path: Path, options: list[str]
) -> None:
    """All threads would stand still meanwhile, at each connection."""
    with pytest.raises(ConfigError, match="would take too long"):
        private_key(locked(tmp_path, *options, "-iter", "1100000"), "ssl.keystore.key", "secret")
    private_key(locked(tmp_path, *options), "ssl.keystore.key", "secret")


def test_a_key_whose_password_takes_much_memory_to_try_is_refused(tmp_path: Path) -> None:
    text = locked(tmp_path, "-scrypt")
    private_key(text, "ssl.keystore.key", "secret")
    (block,) = blocks(text, "ssl.keystore.key")
    der = base64.b64decode(block.body)
    assert der.count(b"\x02\x01\x08") == 1  # r, of which with N=16384 each takes 2 MiB
    large = base64.b64encode(der.replace(b"\x02\x01\x08", b"\x02\x01\x7f")).decode()
    with pytest.raises(ConfigError, match="would take too long"):
        private_key(Block(block.label, (), large).lines(), "ssl.keystore.key", "secret")


def test_the_primes_of_a_key_are_not_looked_for() -> None:
    """Of a few kilobytes that would take seconds, of a hundred for ever, and all threads would stand still."""
    p, q, e = 2**2203 - 1, 2**2281 - 1, 65537
    d = pow(e, -1, (p - 1) * (q - 1))
    numbers = rsa.RSAPrivateNumbers(
        p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), rsa.RSAPublicNumbers(e, p * q)
    )
    key = numbers.private_key(unsafe_skip_rsa_key_validation=True)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    begin = time.monotonic()
    private_key(text, "ssl.keystore.key", None)
    assert time.monotonic() - begin < 0.5


def test_a_key_of_any_size_is_refused() -> None:
    text = f"-----BEGIN PRIVATE KEY-----\n{'A' * 100_000}\n-----END PRIVATE KEY-----"
    with pytest.raises(ConfigError, match="larger than any"):
        private_key(text, "ssl.keystore.key", None)
