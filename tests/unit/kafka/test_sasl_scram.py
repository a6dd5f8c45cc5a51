"""SCRAM by the examples of its RFCs, and what becomes of servers that do not keep to it."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkmirror.kafka.access.login import LoginBroken
from sparkmirror.kafka.access.scram import HASHES, scram

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_example_of_rfc_7677() -> None:
    steps = scram("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)
    assert next(steps) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert steps.send(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        steps.send(SERVER_FINAL)


def test_names_are_escaped_and_delegation_tokens_announced() -> None:
    steps = scram("SCRAM-SHA-512", "a=b,c", "x", {"tokenauth": "true"}, nonce="n")
    assert next(steps) == b"n,,n=a=3Db=2Cc,r=n,tokenauth=true"


def test_each_login_has_a_nonce_of_its_own() -> None:
    assert len({next(scram("SCRAM-SHA-256", "u", "p")) for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "not one of SCRAM"),
        (b"\xff\xfe", "not one of SCRAM"),
        (SERVER_FIRST.replace(b"i=4096", b"i=many"), "not one of SCRAM"),
        (SERVER_FIRST.replace(b"s=W", b"s=!"), "not one of SCRAM"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4095 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=99999999999"), "99999999999 iterations"),
        (SERVER_FIRST.replace(b"r=r", b"r=x"), "does not belong to this login"),
        (SERVER_FIRST.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""), "does not belong"),
    ],
)
def test_a_wrong_challenge_is_not_answered(answer: bytes, says: str) -> None:
    steps = scram("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)
    next(steps)
    with pytest.raises(LoginBroken, match=says):
        steps.send(answer)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"v=AAAA", "signature is wrong"),
        (SERVER_FINAL.replace(b"v=6", b"v=7"), "signature is wrong"),
        (b"v=!", "not one of SCRAM"),
        (b"", "not one of SCRAM"),
        (b"e=invalid-proof", "refused the proof"),
    ],
)
def test_a_server_without_the_password_is_found_out(answer: bytes, says: str) -> None:
    steps = scram("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)
    next(steps)
    steps.send(SERVER_FIRST)
    with pytest.raises(LoginBroken, match=says) as raised:
        steps.send(answer)
    assert "pencil" not in str(raised.value)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(HASHES)), st.text(min_size=1), st.text(min_size=1))
def test_a_server_that_holds_the_password_accepts_the_proof(
    mechanism: str, user: str, password: str
) -> None:
    user, password = (text.encode(errors="replace").decode() for text in (user, password))
    digest = HASHES[mechanism]
    steps = scram(mechanism, user, password)
    first = next(steps).decode()
    nonce = first.rpartition(",r=")[2]
    salt = b"any salt"
    server_first = f"r={nonce}more,s={base64.b64encode(salt).decode()},i=4096"
    final = steps.send(server_first.encode()).decode()
    bare, _, proof = final.rpartition(",p=")
    # What the server keeps is not the password but these two keys.
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, 4096)
    stored = hashlib.new(digest, hmac.digest(salted, b"Client Key", digest)).digest()
    server_key = hmac.digest(salted, b"Server Key", digest)
    signed = ",".join([first.removeprefix("n,,"), server_first, bare]).encode()
    signature = hmac.digest(stored, signed, digest)
    client_key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert hashlib.new(digest, client_key).digest() == stored
    with pytest.raises(StopIteration):
        steps.send(b"v=" + base64.b64encode(hmac.digest(server_key, signed, digest)))


def test_iterations_have_a_bound() -> None:
    """The broker says how many; a config says which broker."""
    for count, is_too_many in ((1_000_001, True), (1_000_000, False)):
        steps = scram("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)
        next(steps)
        answer = SERVER_FIRST.replace(b"i=4096", b"i=%d" % count)
        if is_too_many:
            with pytest.raises(LoginBroken, match="1000001 iterations"):
                steps.send(answer)
        else:
            steps.send(answer)
