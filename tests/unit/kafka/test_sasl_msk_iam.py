"""Logins at Amazon MSK: the signed payload's form, checked with AWS's own signer, and where credentials come from."""

from __future__ import annotations

import base64
import datetime
import io
import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import AccessFailed, ConfigError, ConnectionFailed
from sparkmirror.kafka.access.login import MODULES, Login, LoginBroken, login_of
from sparkmirror.kafka.access.msk_iam import Identity, msk_iam, signed_payload, signed_token
from sparkmirror.kafka.access.oauth import bearer
from sparkmirror.kafka.access.sigv4 import AwsCredentials
from sparkmirror.kafka.settings import client_settings

auth = pytest.importorskip("botocore.auth", reason="needs the extra aws")
from botocore.awsrequest import AWSRequest  # noqa: E402 - behind the question whether it is there
from botocore.credentials import Credentials  # noqa: E402

HOST = "b-1.mirror.abc123.c2.kafka.eu-central-1.amazonaws.com"
KEY, SECRET, SESSION = "AKIDEXAMPLE", "hush/hush+EXAMPLEKEY", "session+token/with=signs=="
NOW = datetime.datetime(2026, 11, 16, 9, 30, 5, tzinfo=datetime.UTC)
PAYLOAD_KEYS = {
    "version",
    "host",
    "user-agent",
    "action",
    "x-amz-algorithm",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-signedheaders",
    "x-amz-expires",
    "x-amz-signature",
}


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's AWS settings reaches a test."""
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


def login(options: str = "", mechanism: str = "AWS_MSK_IAM", **properties: str) -> Login:
    return login_of(
        client_settings(
            f"c{time.monotonic_ns()}",
            {
                "bootstrap.servers": f"{HOST}:9098",
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": f"{MODULES[mechanism][0]} required {options};",
                **{name.replace("_", "."): value for name, value in properties.items()},
            },
        )
    )


def oracle(host: str, region: str, credentials: AwsCredentials, now: datetime.datetime) -> str:
    """The signature that AWS's own signer makes for the same request."""
    request = AWSRequest("GET", f"https://{host}/", params={"Action": "kafka-cluster:Connect"})
    request.context["timestamp"] = now.strftime("%Y%m%dT%H%M%SZ")
    signer = auth.SigV4QueryAuth(
        Credentials(credentials.access_key, credentials.secret_key, credentials.session_token),
        "kafka-cluster",
        region,
        900,
    )
    # The signer takes the time from a clock of its own; what is compared is what it makes of a given time.
    signer._modify_request_before_signing(request)
    canonical = signer.canonical_request(request)
    return str(signer.signature(signer.string_to_sign(request, canonical), request))


def test_the_payload_has_the_published_form() -> None:
    payload = json.loads(signed_payload(AwsCredentials(KEY, SECRET), "eu-central-1", HOST, NOW))
    assert set(payload) == PAYLOAD_KEYS
    assert payload["version"] == "2020_10_22"
    assert payload["host"] == HOST
    assert payload["action"] == "kafka-cluster:Connect"
    assert payload["x-amz-algorithm"] == "AWS4-HMAC-SHA256"
    assert payload["x-amz-credential"] == f"{KEY}/20261116/eu-central-1/kafka-cluster/aws4_request"
    assert payload["x-amz-date"] == "20261116T093005Z"
    assert payload["x-amz-signedheaders"] == "host"
    assert payload["x-amz-expires"] == "900"
    assert len(bytes.fromhex(payload["x-amz-signature"])) == 32
    assert all(isinstance(value, str) for value in payload.values())


def test_temporary_credentials_carry_their_token() -> None:
    credentials = AwsCredentials(KEY, SECRET, SESSION)
    payload = json.loads(signed_payload(credentials, "eu-central-1", HOST, NOW))
    assert set(payload) == PAYLOAD_KEYS | {"x-amz-security-token"}
    assert payload["x-amz-security-token"] == SESSION


_TEXT = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=60)


@given(
    _TEXT,
    st.none() | _TEXT,
    st.sampled_from(["us-east-1", "cn-north-1", "us-gov-west-1"]),
    st.datetimes(datetime.datetime(2020, 1, 1), datetime.datetime(2099, 1, 1)),  # noqa: DTZ001
)
def test_the_signature_is_the_one_that_aws_makes(
    secret: str, session: str | None, region: str, when: datetime.datetime
) -> None:
    now = when.replace(tzinfo=datetime.UTC)
    credentials = AwsCredentials(KEY, secret, session)
    payload = json.loads(signed_payload(credentials, region, HOST, now))
    assert payload["x-amz-signature"] == oracle(HOST, region, credentials, now)


def test_a_token_is_the_signed_address() -> None:
    credentials = AwsCredentials(KEY, SECRET, SESSION)
    token = signed_token(credentials, "us-west-2", NOW)
    assert "=" not in token
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert (url.scheme, url.netloc, url.path) == ("https", "kafka.us-west-2.amazonaws.com", "/")
    parameters = dict(parse_qsl(url.query, strict_parsing=True))
    assert parameters.pop("User-Agent") == "sparkmirror"
    assert parameters.pop("X-Amz-Signature") == oracle(url.netloc, "us-west-2", credentials, NOW)
    assert parameters == {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{KEY}/20261116/us-west-2/kafka-cluster/aws4_request",
        "X-Amz-Date": "20261116T093005Z",
        "X-Amz-Expires": "900",
        "X-Amz-Security-Token": SESSION,
        "X-Amz-SignedHeaders": "host",
    }


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (HOST, "eu-central-1"),
        ("boot-x1.c1.kafka-serverless.us-east-1.amazonaws.com", "us-east-1"),
        ("b-2.my-east-9.x.c3.kafka.cn-northwest-1.amazonaws.com.cn", "cn-northwest-1"),
        ("b-1.x.kafka.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("kafka-ap-southeast-2.corp.example", "ap-southeast-2"),
        ("broker.corp.example", "sa-east-1"),
    ],
)
def test_the_region_is_that_in_the_brokers_name_else_the_machines(
    monkeypatch: pytest.MonkeyPatch, host: str, region: str
) -> None:
    monkeypatch.setenv("AWS_REGION", "sa-east-1")
    assert Identity(login()).region(host) == region


def test_without_any_region_it_is_said() -> None:
    with pytest.raises(ConfigError, match="Set AWS_REGION"):
        Identity(login()).region("broker.corp.example")


# -- conversations --------------------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.mark.usefixtures("environment")
def test_credentials_of_the_environment() -> None:
    handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    one = login("awsDebugCreds=true", sasl_client_callback_handler_class=handler)
    conversation = msk_iam(one, HOST)
    payload = json.loads(next(conversation.steps))
    assert payload["x-amz-credential"].startswith(f"{KEY}/")
    with pytest.raises(StopIteration):
        conversation.steps.send(b'{"version":"2020_10_22","request-id":"r"}')
    assert SECRET not in repr(conversation)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("answer", [b"", b"{}", b'{"version":"1"}', b"[]", b"\xff"])
def test_an_answer_of_another_kind_is_no_success(answer: bytes) -> None:
    steps = msk_iam(login(), HOST).steps
    next(steps)
    with pytest.raises(LoginBroken):
        steps.send(answer)


@pytest.mark.usefixtures("environment")
def test_oauthbearer_with_the_handler_for_iam() -> None:
    handler = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
    one = login(mechanism="OAUTHBEARER", sasl_login_callback_handler_class=handler)
    first = next(bearer(one, HOST).steps).decode()
    token = first.split("\x01")[1].removeprefix("auth=Bearer ")
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    assert url.startswith(
        "https://kafka.eu-central-1.amazonaws.com/?Action=kafka-cluster%3AConnect&"
    )


def test_a_profile(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text(
        f"[mirror]\naws_access_key_id=P{KEY}\naws_secret_access_key={SECRET}\n", encoding="ascii"
    )
    conversation = msk_iam(login('awsProfileName="mirror"'), HOST)
    assert conversation.principal == "AWS profile mirror"
    assert json.loads(next(conversation.steps))["x-amz-credential"].startswith(f"P{KEY}/")
    with pytest.raises(ConfigError, match="no AWS profile other"):
        msk_iam(login('awsProfileName="other"'), HOST)


def test_no_credentials_at_all() -> None:
    with pytest.raises(AccessFailed, match="no AWS credentials for cluster c"):
        msk_iam(login(), HOST)


# -- roles ----------------------------------------------------------------------------------------


@dataclass
class Sts:
    """AWS's token service on loopback: gives numbered credentials that end after `lifetime` seconds, or refuses."""

    lifetime: float = 3600.0
    refuses: str = ""
    status: int = 403
    asked: list[tuple[dict[str, list[str]], str]] = field(default_factory=list)

    def answer(self) -> tuple[int, str]:
        if self.refuses:
            return self.status, (
                f"<ErrorResponse><Error><Code>{self.refuses}</Code><Message>{SECRET}</Message></Error></ErrorResponse>"
            )
        ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.lifetime)
        return 200, (
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
            f"<AccessKeyId>ASIA{len(self.asked)}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>"
            f"<SessionToken>{SESSION}</SessionToken><Expiration>{ends:%Y-%m-%dT%H:%M:%SZ}</Expiration>"
            "</Credentials></AssumeRoleResult></AssumeRoleResponse>"
        )


@pytest.fixture
def sts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sts]:
    service = Sts()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            service.asked.append((parse_qs(body), self.headers["Authorization"]))
            status, text = service.answer()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield service
    server.shutdown()
    server.server_close()
    thread.join()


ROLE = "arn:aws:iam::123456789012:role/mirror"


def payload_of(one: Login) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(next(msk_iam(one, HOST).steps))
    return made


@pytest.mark.usefixtures("environment")
def test_a_role_is_assumed_once_and_again_before_it_ends(sts: Sts) -> None:
    one = login(f'awsRoleArn="{ROLE}" awsRoleSessionName="s1" awsStsRegion="eu-west-3"')
    payload = payload_of(one)
    assert payload["x-amz-credential"].startswith("ASIA1/")
    assert payload["x-amz-security-token"] == SESSION
    payload_of(one)
    ((form, signed),) = sts.asked
    assert form["Action"] == ["AssumeRole"]
    assert form["RoleArn"] == [ROLE]
    assert form["RoleSessionName"] == ["s1"]
    assert f"Credential={KEY}/" in signed
    assert "/eu-west-3/sts/" in signed
    assert msk_iam(one, HOST).principal == f"AWS role {ROLE}"

    sts.lifetime = 200
    other = login(f'awsRoleArn="{ROLE}" awsRoleExternalId="x1"')
    assert payload_of(other)["x-amz-credential"].startswith("ASIA2/")
    assert payload_of(other)["x-amz-credential"].startswith("ASIA3/")
    assert sts.asked[-1][0]["ExternalId"] == ["x1"]
    assert sts.asked[-1][0]["RoleSessionName"] == ["aws-msk-iam-auth"]


def test_a_role_by_keys_of_its_own(sts: Sts) -> None:
    payload_of(
        login(f'awsRoleArn="{ROLE}" awsRoleAccessKeyId="ROLEKEY" awsRoleSecretAccessKey="{SECRET}"')
    )
    assert "Credential=ROLEKEY/" in sts.asked[0][1]


@pytest.mark.usefixtures("environment")
def test_a_role_that_is_refused_is_named_without_the_reason_given(sts: Sts) -> None:
    sts.refuses = "AccessDenied"
    with pytest.raises(AccessFailed, match="AWS answered AccessDenied") as raised:
        payload_of(login(f'awsRoleArn="{ROLE}"'))
    assert ROLE in str(raised.value)
    assert SECRET not in str(raised.value)
    sts.status = 503
    with pytest.raises(ConnectionFailed):
        payload_of(login(f'awsRoleArn="{ROLE}"'))


@pytest.mark.usefixtures("environment")
def test_the_answer_with_the_keys_is_not_logged(sts: Sts, caplog: pytest.LogCaptureFixture) -> None:
    logged = io.StringIO()
    handler = logging.StreamHandler(
        logged
    )  # pytest's own is handed what does not reach the root, too
    logging.getLogger().addHandler(handler)
    try:
        with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "botocore"):
            payload_of(login(f'awsRoleArn="{ROLE}"'))
    finally:
        logging.getLogger().removeHandler(handler)
    assert len(sts.asked) == 1
    assert logged.getvalue()  # what is harmless is still there
    assert SECRET not in logged.getvalue()
    assert SESSION not in logged.getvalue()


def test_without_the_package_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(ConfigError, match=r"pip install 'sparkmirror\[aws\]'"):
        msk_iam(login(), HOST)


@pytest.mark.usefixtures("environment")
def test_a_service_that_is_away_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
    with pytest.raises(ConnectionFailed, match="Check that AWS can be reached"):
        payload_of(login(f'awsRoleArn="{ROLE}"'))
