"""Signatures of internal requests: Java's values, and the error for everything that is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.control.herding import Signature
from sparkmirror.control.signing import (
    ALGORITHM_HEADER,
    SIGNATURE_HEADER,
    check_algorithms,
    is_key_due,
    new_session_key,
    sign,
    signed_headers,
    verify,
)
from sparkmirror.control.states import SessionKey
from sparkmirror.errors import BadRequest, ConfigError, Forbidden, SparkMirrorError, Unavailable

_KEY = SessionKey(b"0123456789abcdef0123456789abcdef", "HmacSHA256", 1000)
_PERMITTED = ["HmacSHA256"]
_BODY = b'[{"a":"b"}]'


@pytest.mark.parametrize(
    ("algorithm", "body", "signature"),
    [
        ("HmacSHA256", _BODY, "w4sJz7Fw7kA3ME3hRGqTeArGK8uZfbl3MtjL+RdNXNI="),
        ("HmacSHA1", b"", "iiJwjPDd5wsOderZV15lnc5qhbI="),
        ("HmacSHA384", b"", "65sAAgfKRKxQdsv2LOpaIBpc40DKuBrcRhv5sZtDY7skxUVNd4Y6gGjbvHLRrylL"),
        (
            "HmacSHA512",
            b"",
            "0dt548fZKkLG/iOR5WUnGNj9Mv7rybhS3ybMdG+mKwHBG6uDRLVItR8zb4ODEr9NTRT+VbRcZ1Kq/fHw6sjDQg==",
        ),
    ],
)
def test_signatures_are_those_of_java(algorithm: str, body: bytes, signature: str) -> None:
    assert sign(_KEY, body, algorithm) == signature
    verify(Signature(signature, algorithm, body), _KEY, [algorithm])


def test_a_request_carries_both_headers() -> None:
    assert signed_headers(_KEY, _BODY, "HmacSHA256") == {
        SIGNATURE_HEADER: "w4sJz7Fw7kA3ME3hRGqTeArGK8uZfbl3MtjL+RdNXNI=",
        ALGORITHM_HEADER: "HmacSHA256",
    }


_GOOD = sign(_KEY, _BODY, "HmacSHA256")


@pytest.mark.parametrize(
    ("signature", "algorithm", "key", "error", "message"),
    [
        (None, "HmacSHA256", _KEY, BadRequest, "missing required signature"),
        (_GOOD, None, _KEY, BadRequest, "missing required signature"),
        (_GOOD, "HmacSHA257", _KEY, BadRequest, "Algorithm HmacSHA257 not available"),
        (_GOOD, "HmacSHA512", _KEY, BadRequest, r"'HmacSHA512'.*\[HmacSHA256\]"),
        ("ab!d", "HmacSHA256", _KEY, BadRequest, "Illegal base64 character 21"),
        ("abcde", "HmacSHA256", _KEY, BadRequest, "base64"),
        ("ab=", "HmacSHA256", _KEY, BadRequest, "wrong 4-byte ending unit"),
        ("=abc", "HmacSHA256", _KEY, BadRequest, "base64"),
        (_GOOD, "HmacSHA256", None, Unavailable, "session key"),
        (sign(_KEY, b"[]", "HmacSHA256"), "HmacSHA256", _KEY, Forbidden, "invalid signature"),
        ("", "HmacSHA256", _KEY, Forbidden, "invalid signature"),
    ],
)
def test_what_is_wrong_is_told(
    signature: str | None,
    algorithm: str | None,
    key: SessionKey | None,
    error: type[SparkMirrorError],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        verify(Signature(signature, algorithm, _BODY), key, _PERMITTED)


def test_padding_may_be_left_out() -> None:
    verify(Signature(_GOOD.rstrip("="), "HmacSHA256", _BODY), _KEY, _PERMITTED)


@given(st.binary(), st.binary(min_size=1, max_size=80))
def test_another_key_or_body_is_refused(body: bytes, other: bytes) -> None:
    signature = Signature(sign(_KEY, body, "HmacSHA256"), "HmacSHA256", body)
    verify(signature, _KEY, _PERMITTED)
    with pytest.raises(Forbidden):
        verify(signature._replace(body=body + other), _KEY, _PERMITTED)
    if other.rstrip(b"\0") != _KEY.key:
        with pytest.raises(Forbidden):
            verify(signature, SessionKey(other, "HmacSHA256", 0), _PERMITTED)


@pytest.mark.parametrize(
    ("algorithm", "size", "length"),
    [
        ("HmacSHA1", None, 64),
        ("HmacSHA256", None, 32),
        ("HmacSHA384", None, 48),
        ("HmacSHA512", None, 64),
        ("HmacSHA256", 128, 16),
        ("HmacSHA256", 41, 6),
    ],
)
def test_keys_have_javas_sizes(algorithm: str, size: int | None, length: int) -> None:
    key = new_session_key(algorithm, size, 5)
    assert (len(key.key), key.algorithm, key.created_ms) == (length, algorithm, 5)
    assert key.key != new_session_key(algorithm, size, 5).key


def test_when_a_new_key_is_due() -> None:
    key = new_session_key("HmacSHA256", None, 1000)
    assert is_key_due(None, "HmacSHA256", None, 50, 1000)
    assert not is_key_due(key, "HmacSHA256", None, 50, 1049)
    assert is_key_due(key, "HmacSHA256", None, 50, 1050)
    assert is_key_due(key, "HmacSHA512", None, 50, 1000)
    assert is_key_due(key, "HmacSHA256", 128, 50, 1000)


@pytest.mark.parametrize(
    ("generation", "size", "signature", "permitted", "message"),
    [
        ("HmacFoo", None, "HmacSHA256", ["HmacSHA256"], r"key\.generation\.algorithm=HmacFoo"),
        ("HmacSHA256", 39, "HmacSHA256", ["HmacSHA256"], r"key\.size=39"),
        ("HmacSHA256", None, "Foo", ["Foo"], r"signature\.algorithm=Foo"),
        ("HmacSHA256", None, "HmacSHA256", ["HmacSHA256", "Foo"], r"verification\.algorithms=Foo"),
        ("HmacSHA256", None, "HmacSHA512", ["HmacSHA256"], "not among"),
    ],
)
def test_bad_settings_are_refused(
    generation: str, size: int | None, signature: str, permitted: list[str], message: str
) -> None:
    check_algorithms("HmacSHA256", None, "HmacSHA256", ["HmacSHA256", "HmacSHA512"])
    with pytest.raises(ConfigError, match=message):
        check_algorithms(generation, size, signature, permitted)
