"""AWS_MSK_IAM at a real broker, which checks each field of the payload and its signature as Amazon publishes them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from secured import SecuredCluster, secured_cluster

from sparkmirror.errors import AccessFailed
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import client_settings
from sparkmirror.tools.jvm import java

pytest.importorskip("botocore", reason="needs the extra aws")
pytestmark = pytest.mark.slow

ACCESS, SECRET = "AKIAMIRROR", "hush/hush+secret"
HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"


@pytest.fixture(scope="module")
def msk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    directory = tmp_path_factory.mktemp("msk")
    classes = directory / "classes"
    compiler = Path(java()).with_name("javac")
    source = Path(__file__).with_name("MskIamServer.java")
    subprocess.run([compiler, "-d", classes, source], check=True, timeout=120)
    listeners = {"IAM": "SASL_PLAINTEXT", "IAM_SSL": "SASL_SSL"}
    properties = {}
    for listener in listeners:
        prefix = f"listener.name.{listener.lower()}"
        properties[f"{prefix}.sasl.enabled.mechanisms"] = "AWS_MSK_IAM"
        properties[f"{prefix}.aws_msk_iam.sasl.jaas.config"] = "MskIamServer$Login required;"
    with secured_cluster(
        directory,
        listeners=listeners,
        properties=properties,
        jvm=(
            f"-Xbootclasspath/a:{classes}",
            f"-Dmsk.iam.access={ACCESS}",
            f"-Dmsk.iam.secret={SECRET}",
        ),
    ) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """AWS credentials of this machine, and of nobody else."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def enter(msk: SecuredCluster, listener: str, alias: str) -> None:
    properties = msk.client(listener, "AWS_MSK_IAM")
    properties["sasl.client.callback.handler.class"] = HANDLER
    cluster = Cluster(client_settings(alias, properties))
    try:
        cluster.refresh(())
        assert len(cluster.brokers) == 1
    finally:
        cluster.close()


@pytest.mark.parametrize("listener", ["IAM", "IAM_SSL"])
def test_a_broker_that_checks_the_payload_lets_us_in(msk: SecuredCluster, listener: str) -> None:
    enter(msk, listener, f"good-{listener}")


def test_temporary_credentials(msk: SecuredCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session/token+with=signs==")
    enter(msk, "IAM_SSL", "temporary")


def test_a_wrong_secret_is_refused(msk: SecuredCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    with pytest.raises(
        AccessFailed, match="did not let us in with AWS_MSK_IAM as the AWS"
    ) as raised:
        enter(msk, "IAM_SSL", "wrong")
    assert "kafka-cluster:Connect" in raised.value.remedy
    for secret in ("another-secret", ACCESS):
        assert secret not in str(raised.value)
    assert "AWS_MSK_IAM refused: signature" in msk.cluster.log(1).read_text(encoding="utf-8")
