"""`sparkmirror.start` on a session that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkAttributeError

import sparkmirror
from sparkmirror.errors import ConfigError


class ConnectSession:
    """Says of its context what a session of Spark Connect says; making a real one takes gRPC."""

    @property
    def sparkContext(self) -> None:
        name = "errorClass" if pyspark.__version__ >= "4" else "error_class"
        parameter = "messageParameters" if pyspark.__version__ >= "4" else "message_parameters"
        why: dict[str, Any] = {
            name: "JVM_ATTRIBUTE_NOT_SUPPORTED",
            parameter: {"attr_name": "sparkContext"},
        }
        raise PySparkAttributeError(**why)


def test_a_session_of_spark_connect_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = A, B\n")
    session: Any = ConnectSession()
    with pytest.raises(ConfigError, match="session of Spark Connect"):
        sparkmirror.start(session, file)
