"""The table of APIs: what is chosen of what a broker offers, and what is lost where it offers less."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest

from sparkmirror.kafka import api_versions, messages
from sparkmirror.kafka.api_versions import (
    APIS,
    DESCRIBE_CONFIGS,
    FETCH,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    Versions,
    common,
    losses,
    missing,
    unsupported,
    uses,
)

ALL: Versions = {api.key: (0, api.most) for api in APIS.values()}


@pytest.mark.parametrize(
    ("low", "high", "version"),
    [(0, 18, 13), (4, 13, 13), (0, 12, 12), (0, 6, 6), (4, 4, 4), (0, 3, None), (14, 18, None)],
)
def test_the_newest_version_that_both_sides_speak(low: int, high: int, version: int | None) -> None:
    assert FETCH.version({FETCH.key: (low, high)}) == version


def test_an_api_that_is_not_offered_has_no_version() -> None:
    assert FETCH.version({PRODUCE.key: (0, 13)}) is None


def test_a_caller_may_ask_for_less_and_never_for_more() -> None:
    assert METADATA.version({METADATA.key: (0, 13)}, most=9) == 9
    assert METADATA.version({METADATA.key: (0, 20)}, most=20) == METADATA.most


def test_every_request_that_we_make_is_in_the_table_within_its_versions() -> None:
    """What the table promises can be encoded."""
    classes = [getattr(messages, name) for name in messages.__all__]
    classes += [FetchRequest, ProduceRequest]
    assert {one.API_KEY for one in classes} == set(APIS)
    for one in classes:
        api = APIS[one.API_KEY]
        assert one.min_version <= api.least <= api.most <= one.max_version, api.name
        assert one.__name__ == f"{api.name}Request"


def test_an_error_names_the_api_and_the_versions() -> None:
    error = unsupported(FETCH, {1: (0, 3)}, "kafka:9092")
    assert error.code == messages.UNSUPPORTED_VERSION
    assert error.message == "kafka:9092 offers Fetch in versions 0 to 3, and we speak 4 to 13."
    assert error.remedy == "Nothing can be copied without it."
    error = unsupported(DESCRIBE_CONFIGS, {}, "kafka:9092")
    assert error.message == "kafka:9092 does not offer DescribeConfigs."
    assert error.remedy.startswith("Without it, topic properties")


def test_a_cluster_offers_what_all_of_its_brokers_offer() -> None:
    one: Versions = {1: (0, 13), 3: (0, 13), 61: (0, 0)}
    other: Versions = {1: (4, 11), 3: (0, 12)}
    assert common([one, other]) == {1: (4, 11), 3: (0, 12)}
    assert common([]) == {}


def test_a_new_broker_loses_nothing() -> None:
    assert list(losses(ALL, ("source", "target", "worker"))) == []
    assert missing(ALL, ("source", "target", "worker")) == []


def test_of_each_api_the_heaviest_loss_is_told() -> None:
    old = {**ALL, FETCH.key: (0, 6)}
    (lost,) = losses(old, ["source"])
    assert (lost.api, lost.lack.least, lost.is_missing) == (FETCH, 7, False)
    (gone,) = losses({key: ALL[key] for key in ALL if key != 22}, ["source", "target"])
    assert (gone.api, gone.is_missing) == (INIT_PRODUCER_ID, True)
    assert "at-least-once" in gone.lack.what


def test_a_loss_is_one_of_a_side() -> None:
    assert list(losses({**ALL, PRODUCE.key: (0, 7)}, ["source"])) == []
    assert [lost.api for lost in losses({**ALL, PRODUCE.key: (0, 6)}, ["target"])] == [PRODUCE]


def test_what_no_ids_explain_is_told_once() -> None:
    old = {**ALL, FETCH.key: (0, 12), METADATA.key: (0, 9)}
    assert [lost.api for lost in losses(old, ["source"])] == [METADATA]


def test_what_nothing_can_be_copied_without() -> None:
    assert missing({**ALL, FETCH.key: (0, 3)}, ["source"]) == [FETCH]
    assert missing({**ALL, PRODUCE.key: (0, 2)}, ["source"]) == []
    assert missing({**ALL, PRODUCE.key: (0, 2)}, ["target"]) == [PRODUCE]
    assert api_versions.JOIN_GROUP in missing({}, ["worker"])


def test_a_table_of_what_is_used() -> None:
    offered = {**ALL, FETCH.key: (0, 2), PRODUCE.key: (0, 6)}
    del offered[DESCRIBE_CONFIGS.key]
    table = {use.api: use for use in uses(offered, ["source", "target"])}
    assert table["Fetch"][1:] == ("versions 0 to 2", "", "nothing can be copied")
    assert table["Produce"][1:3] == ("versions 0 to 6", "6")
    assert "zstd" in table["Produce"].lost
    assert table["DescribeConfigs"][1:3] == ("not offered", "")
    assert table["ListOffsets"].lost == ""
    assert "JoinGroup" not in table, "of workers"
    assert uses(None, ["source"]) == []
