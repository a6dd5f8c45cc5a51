"""Logging in at Amazon MSK with AWS credentials: a login and a broker's host in, a signed request to connect out.

Two forms of the same request: a JSON object (mechanism AWS_MSK_IAM), and an address in base64 as a token (OAUTHBEARER).
Credentials come from botocore's chain, by the options that Amazon's Java library has.
"""

from __future__ import annotations

import base64
import datetime
import json
import logging
import os
import re
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from sparkmirror.errors import AccessFailed, ConnectionFailed
from sparkmirror.formats import java_json
from sparkmirror.kafka.access.login import Conversation, Login, LoginBroken, PerLogin
from sparkmirror.kafka.access.sigv4 import EXPIRES_S, AwsCredentials, presigned, query
from sparkmirror.kafka.access.tokens import Token

_VERSION = "2020_10_22"
_AGENT = "sparkmirror"
_SESSION = "aws-msk-iam-auth"
_RENEW_BEFORE = datetime.timedelta(minutes=5)
# A region is looked for anywhere in the broker's name, as Amazon's Java library does.
_REGION = re.compile(
    r"(?:af|ap|ca|cn|eu|eusc-de|il|me|mx|sa|us)(?:-gov|-iso[a-z]?)?"
    r"-(?:central|(?:north|south)(?:east|west)?|east|west)-[0-9]+"
)
_REMEDY = (
    "Allow kafka-cluster:Connect on this cluster to these credentials (IAM policy), check that they have not ended, "
    "and that this machine's clock is right."
)


def msk_iam(login: Login, host: str) -> Conversation:
    """Log in with mechanism AWS_MSK_IAM."""
    identity = _identities.of(login)
    payload = signed_payload(identity.credentials(), identity.region(host), host, _now())
    return Conversation(identity.name, _REMEDY, _conversation(payload))


def _conversation(payload: bytes) -> Generator[bytes, bytes, None]:
    answer = yield payload
    try:
        version = java_json.decode(answer)["version"]
    except (ValueError, KeyError, TypeError):
        version = None
    if version != _VERSION:
        raise LoginBroken("its answer is not one of AWS_MSK_IAM")


def signed_payload(
    credentials: AwsCredentials, region: str, host: str, now: datetime.datetime
) -> bytes:
    """What mechanism AWS_MSK_IAM sends."""
    parameters = presigned(credentials, region, host, now)
    payload = {
        "version": _VERSION,
        "host": host,
        "user-agent": _AGENT,
        **{name.lower(): value for name, value in parameters.items()},
    }
    return json.dumps(payload, separators=(",", ":")).encode()


def signed_token(credentials: AwsCredentials, region: str, now: datetime.datetime) -> str:
    """What OAUTHBEARER sends: the signed address of the region's MSK, with the agent added."""
    host = f"kafka.{region}.amazonaws.com"
    parameters = {**presigned(credentials, region, host, now), "User-Agent": _AGENT}
    return (
        base64.urlsafe_b64encode(f"https://{host}/?{query(parameters)}".encode())
        .decode()
        .rstrip("=")
    )


class IamTokens:
    """Signed addresses as tokens (IAMOAuthBearerLoginCallbackHandler)."""

    def __init__(self, login: Login) -> None:
        self._identity = Identity(login)

    def fetch(self, host: str, patient: bool) -> Token:
        now = _now()
        text = signed_token(self._identity.credentials(), self._identity.region(host), now)
        begins = now.timestamp()
        return Token(text, self._identity.name, begins, begins + EXPIRES_S)


class Identity:
    """Whose credentials a login uses: those of a profile, of a role, or of whatever botocore finds.

    Invariants: one session and one role at a time, however many threads ask; a role's credentials are fetched anew five minutes
    before they end.
    """

    def __init__(self, login: Login) -> None:
        self._login = login
        self._lock = threading.Lock()
        self._profile = login.options.get("awsProfileName", "")
        self._role = "" if self._profile else login.options.get("awsRoleArn", "")
        self._session = _new_session(login, self._profile)
        self._assumed: tuple[AwsCredentials, datetime.datetime] | None = None

    @property
    def name(self) -> str:
        if self._profile:
            return f"AWS profile {self._profile}"
        return f"AWS role {self._role}" if self._role else "the AWS credentials of this machine"

    def region(self, host: str) -> str:
        """The region in a broker's name, else this machine's."""
        found = _REGION.search(host)
        region = found[0] if found else self._own_region()
        if not region:
            raise self._login.wrong(
                f"the AWS region of broker {host} is not known: its name does not say it.",
                "Set AWS_REGION in the environment of worker and executors.",
            )
        return region

    def credentials(self) -> AwsCredentials:
        with self._lock, _aws_errors(self._login, self.name):
            return self._of_role() if self._role else self._found()

    def _found(self) -> AwsCredentials:
        found = self._session.get_credentials()
        if found is None:
            raise AccessFailed(
                f"There are no AWS credentials for {self._login.cluster}.",
                "Give some: environment, ~/.aws, an instance's or container's role, or awsProfileName and awsRoleArn "
                "in sasl.jaas.config; executors need them, too.",
            )
        frozen = found.get_frozen_credentials()
        return AwsCredentials(frozen.access_key, frozen.secret_key, frozen.token)

    def _of_role(self) -> AwsCredentials:
        if self._assumed is None or self._assumed[1] - _RENEW_BEFORE <= _now():
            self._assumed = self._assume()
        return self._assumed[0]

    def _assume(self) -> tuple[AwsCredentials, datetime.datetime]:
        options = self._login.options
        region = options.get("awsStsRegion") or self._own_region() or "us-east-1"
        client = self._session.create_client(
            "sts",
            region_name=region,
            aws_access_key_id=options.get("awsRoleAccessKeyId"),
            aws_secret_access_key=options.get("awsRoleSecretAccessKey"),
            aws_session_token=options.get("awsRoleSessionToken"),
        )
        wanted = {
            "RoleArn": self._role,
            "RoleSessionName": options.get("awsRoleSessionName") or _SESSION,
        }
        if options.get("awsRoleExternalId"):
            wanted["ExternalId"] = options["awsRoleExternalId"]
        try:
            given = client.assume_role(**wanted)["Credentials"]
        finally:
            client.close()
        credentials = AwsCredentials(
            given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"]
        )
        return credentials, given["Expiration"]

    def _own_region(self) -> str:
        named = os.environ.get("AWS_REGION") or self._session.get_config_variable("region")
        return str(named or "")


def _new_session(login: Login, profile: str) -> Any:
    try:
        import botocore.session
    except ImportError:
        raise login.wrong(
            f"sasl.mechanism={login.mechanism} with AWS credentials needs the package botocore, which is not installed.",
            "Install sparkmirror with the extra aws: pip install 'sparkmirror[aws]'; on executors, too.",
        ) from None
    # At level DEBUG it logs whole answers, keys and all; what matters of them reaches us as exceptions.
    logging.getLogger("botocore").propagate = False
    return botocore.session.Session(profile=profile or None)


@contextmanager
def _aws_errors(login: Login, name: str) -> Generator[None, None, None]:
    """botocore's errors as ours; what botocore says may hold what was sent, so only its kind is told."""
    from botocore import exceptions

    away = (
        exceptions.ConnectionError,
        exceptions.HTTPClientError,
        exceptions.CredentialRetrievalError,
    )
    what = f"{name[:1].upper()}{name[1:]}, for {login.cluster}, cannot be used"
    try:
        yield
    except exceptions.ProfileNotFound:
        raise login.wrong(
            f"there is no {name} on this machine.", "Correct awsProfileName, or add the profile."
        ) from None
    except exceptions.ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if status >= 500 or code.startswith("Throttl"):
            raise ConnectionFailed(f"{what}: AWS answered {code}.") from None
        raise AccessFailed(
            f"{what}: AWS answered {code}.",
            "Correct awsRoleArn, and let these credentials assume the role (sts:AssumeRole).",
        ) from None
    except away as error:
        raise ConnectionFailed(
            f"{what}: {type(error).__name__}.", "Check that AWS can be reached from here."
        ) from None
    except exceptions.BotoCoreError as error:
        raise AccessFailed(
            f"{what}: {type(error).__name__}.", "Check the AWS credentials of this machine."
        ) from None


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


_identities: PerLogin[Identity] = PerLogin(Identity)
