"""S5, dedicated mode: `sparkmirror run mm2.properties` from a secured source, with an API key or with a JKS truststore."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import PASSWORD
from kafka_tools import QUICK_JVM
from program import Program
from scenario_s5 import (
    API_KEY,
    AS_WRITTEN,
    assert_copied,
    copy_more,
    files,
    managed_source,
    trusted,
)
from secured import SecuredCluster

from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.tools.jvm import KAFKA_VERSION


@pytest.fixture(
    scope="module", params=[KAFKA_VERSION, pytest.param("2.4.1", marks=pytest.mark.slow)]
)
def version(request: pytest.FixtureRequest) -> str:
    """Both clusters': the current one, and the one that the scenario was written for."""
    return str(request.param)


@pytest.fixture(scope="module")
def source(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with managed_source(tmp_path_factory.mktemp("secured"), version) as cluster:
        yield cluster


@pytest.fixture
def target(version: str, tmp_path: Path) -> Iterator[KafkaCluster]:
    with KafkaCluster("target", 1, tmp_path, jvm=QUICK_JVM, version=version) as cluster:
        yield cluster


def check_flow(source: SecuredCluster, target: KafkaCluster, directory: Path, name: str) -> Program:
    """All of `orders` and nothing else arrives, headers too; gives the program that has copied it."""
    file = files(source, target, directory).path(name)
    command = [sys.executable, "-m", "sparkmirror", "run", str(file)]
    with Program(
        command, file.with_name("sparkmirror.log"), os.environ | trusted(source)
    ) as mirror:
        copy_more(source, target)
        assert mirror.stop() == 0
    assert_copied(source, target)
    assert "Traceback" not in mirror.output
    return mirror


def test_an_api_key_over_sasl_ssl(
    source: SecuredCluster, target: KafkaCluster, tmp_path: Path
) -> None:
    mirror = check_flow(source, target, tmp_path, "mm2-sasl.properties")
    assert API_KEY not in mirror.output
    assert AS_WRITTEN not in mirror.output


@pytest.mark.slow
def test_a_jks_truststore_made_by_keytool(
    source: SecuredCluster, target: KafkaCluster, tmp_path: Path
) -> None:
    mirror = check_flow(source, target, tmp_path, "mm2-jks.properties")
    assert PASSWORD not in mirror.output
