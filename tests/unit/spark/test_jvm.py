"""A Spark session that was there before us is never touched."""

from __future__ import annotations

import pytest
from pyspark import SparkContext

from sparkmirror.errors import ConfigError
from sparkmirror.spark.session import SparkSession


class Running:
    """A context of others."""

    appName, master = "notebook", "local[2]"


class Gateway:
    def shutdown(self) -> None:
        raise AssertionError("it is not ours")


def test_a_session_of_others_is_named_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway()
    monkeypatch.setattr(SparkContext, "_active_spark_context", Running())
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    session = SparkSession({})
    with pytest.raises(
        ConfigError, match=r"already running in this process \(notebook, local\[2\]\)"
    ):
        session.start()
    session.stop()
    assert SparkContext._gateway is gateway
