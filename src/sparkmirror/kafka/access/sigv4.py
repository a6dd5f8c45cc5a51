"""AWS Signature Version 4, for the one request that MSK knows: credentials, region and host in, signed query parameters out."""

from __future__ import annotations

import datetime
import hashlib
import hmac
from dataclasses import dataclass, field
from urllib.parse import quote

SERVICE = "kafka-cluster"
ACTION = f"{SERVICE}:Connect"
EXPIRES_S = 900
_ALGORITHM = "AWS4-HMAC-SHA256"
_NO_BODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """What requests are signed with; shows nothing of it."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def presigned(
    credentials: AwsCredentials, region: str, host: str, now: datetime.datetime
) -> dict[str, str]:
    """The parameters of `GET https://HOST/?Action=kafka-cluster:Connect`, in the order in which they were signed."""
    moment = now.astimezone(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{region}/{SERVICE}/aws4_request"
    parameters = {
        "Action": ACTION,
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(EXPIRES_S),
    }
    if credentials.session_token:
        parameters["X-Amz-Security-Token"] = credentials.session_token
    parameters["X-Amz-SignedHeaders"] = "host"
    request = "\n".join(["GET", "/", query(parameters), f"host:{host}", "", "host", _NO_BODY])
    hashed = hashlib.sha256(request.encode()).hexdigest()
    signed = "\n".join([_ALGORITHM, moment, scope, hashed])
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    parameters["X-Amz-Signature"] = hmac.digest(key, signed.encode(), "sha256").hex()
    return parameters


def query(parameters: dict[str, str]) -> str:
    """The parameters as AWS wants them encoded: everything but letters, digits and -_.~"""
    return "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in parameters.items()
    )
