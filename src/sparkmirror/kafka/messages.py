"""Kafka's requests and error codes: message objects in, framed bytes out, and back.

The only module that imports kafka-python, so that its private modules are named in one place.
Fetch and Produce have an encoding of their own (`fetch`, `produce`): those carry record bytes and may not copy them.
"""

from __future__ import annotations

import io
import struct
import threading
from typing import Any

import kafka.errors as kafka_python_errors
from kafka.protocol.admin import (
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    IncrementalAlterConfigsRequest,
    ListGroupsRequest,
)
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from sparkmirror.errors import BrokerError
from sparkmirror.kafka.denials import Access, missing_acl

__all__ = [
    "ApiVersionsRequest",
    "CreateAclsRequest",
    "CreatePartitionsRequest",
    "CreateTopicsRequest",
    "DeleteAclsRequest",
    "DeleteRecordsRequest",
    "DeleteTopicsRequest",
    "DescribeAclsRequest",
    "DescribeClusterRequest",
    "DescribeConfigsRequest",
    "DescribeGroupsRequest",
    "DescribeProducersRequest",
    "FindCoordinatorRequest",
    "HeartbeatRequest",
    "IncrementalAlterConfigsRequest",
    "InitProducerIdRequest",
    "JoinGroupRequest",
    "LeaveGroupRequest",
    "ListGroupsRequest",
    "ListOffsetsRequest",
    "MetadataRequest",
    "OffsetCommitRequest",
    "OffsetFetchRequest",
    "OffsetForLeaderEpochRequest",
    "SaslAuthenticateRequest",
    "SaslHandshakeRequest",
    "SyncGroupRequest",
]

# Error codes that somebody decides on; everything else goes by its flags.
UNKNOWN_SERVER_ERROR = -1
NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
MESSAGE_TOO_LARGE = 10
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
RECORD_LIST_TOO_LARGE = 18  # larger than a segment of the log
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
INVALID_COMMIT_OFFSET_SIZE = 28  # the commit is larger than a batch of the coordinator's log
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
CLUSTER_AUTHORIZATION_FAILED = 31
INVALID_TIMESTAMP = 32
UNSUPPORTED_SASL_MECHANISM = 33
ILLEGAL_SASL_STATE = 34
UNSUPPORTED_VERSION = 35
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_CONFIG = 40
NOT_CONTROLLER = 41
INVALID_REQUEST = 42
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
POLICY_VIOLATION = 44
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
INVALID_PRODUCER_EPOCH = 47
SECURITY_DISABLED = 54
UNKNOWN_PRODUCER_ID = 59
GROUP_ID_NOT_FOUND = 69
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
FENCED_LEADER_EPOCH = 74
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
FENCED_INSTANCE_ID = 82
INVALID_RECORD = 87
PRODUCER_FENCED = 90
UNKNOWN_TOPIC_ID = 100
INCONSISTENT_TOPIC_ID = 103
FETCH_SESSION_TOPIC_ID_ERROR = 106


def error_name(code: int) -> str:
    """Kafka's name of an error code, as its documentation spells it."""
    known = kafka_python_errors.kafka_errors.get(code)
    return str(known.message) if known is not None else f"error {code}"


def is_retriable(code: int) -> bool:
    known = kafka_python_errors.kafka_errors.get(code)
    return bool(known is not None and known.retriable)


def is_stale_metadata(code: int) -> bool:
    """Whether this error says that the leader or the topic is not where we thought."""
    known = kafka_python_errors.kafka_errors.get(code)
    return bool(known is not None and known.invalid_metadata)


_UNAVAILABLE = {UNSUPPORTED_VERSION, TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED}


def is_unavailable(error: Exception | None) -> bool:
    """Whether an error says that an API cannot be used: the brokers do not offer it, or not to us."""
    return isinstance(error, BrokerError) and error.code in _UNAVAILABLE


def broker_error(
    code: int,
    what: str,
    detail: str | None = None,
    remedy: str = "",
    access: Access | None = None,
) -> BrokerError:
    """The error of our tree for a broker's error code; `what` says what was asked, of whom, and `access` what that needs."""
    name = error_name(code)
    denial = "" if access is None else missing_acl(code, access)
    if denial:
        detail = None  # brokers tell a page about the request, and not what was missing
    text = f"{what}: {name}" + (f" ({detail})" if detail else "") + "."
    return BrokerError(code, name, text, denial or remedy, retriable=is_retriable(code))


_first_use = threading.Lock()
"""kafka-python makes the class of a message for a version, its encoder and its decoder when they are first used. Two threads that
do so at once leave one behind that never works: no answer of this kind could be read until the process is started again.
So they are made under this lock, and used without it: an answer may be long, and its broker nobody's friend."""

_UNREADABLE = (struct.error, IndexError, AssertionError)  # besides ValueError


def encode(request: Any, version: int, correlation_id: int, client_id: str) -> bytes:
    """The framed bytes of a request."""
    request.API_VERSION = version
    with _first_use:
        request.with_header(correlation_id=correlation_id, client_id=client_id)
        _compile(request, version, "compiled_encode_into")
    return bytes(request.encode(framed=True, header=True))


def decode(request: Any, payload: bytes | bytearray | memoryview) -> tuple[int, Any]:
    """Correlation id and response object, from the bytes after the frame's length; ValueError if they cannot be read."""
    buffer = io.BytesIO(payload)
    version = request.API_VERSION
    with _first_use:
        response_class = ResponseClassRegistry.get_response_class(request.header)
        kind = response_class[None]
        _compile(kind, version, "compiled_decode_from", data_class=kind)
        if request.API_KEY == ApiVersionsRequest.API_KEY:  # an error comes in version 0
            _compile(kind, 0, "compiled_decode_from", data_class=kind)
    try:
        header = response_class.parse_header(buffer)
        return header.correlation_id, response_class.decode(buffer)
    except _UNREADABLE as error:
        raise ValueError(str(error) or "it is not in the format of its version") from error


def _compile(message: Any, version: int, what: str, **options: Any) -> None:
    """Have the encoder or decoder of a version made, exactly as kafka-python itself looks it up when it is used."""
    flexible = message.flexible_version_q(version)
    getattr(message._struct, what)(version, compact=flexible, tagged=flexible, **options)
