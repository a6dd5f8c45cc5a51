"""Files that travel with plans: all of a plan's clusters get them, and a change of one means a new job when it can be used."""

from __future__ import annotations

import logging
import os
import pickle
from itertools import pairwise
from pathlib import Path

import pytest
from certificates import Authority

from sparkmirror.control.plan_files import PlanFiles
from sparkmirror.dataplane.plan import CopySettings, TaskPlan
from sparkmirror.dataplane.positions import StoreAddress
from sparkmirror.errors import ConfigError
from sparkmirror.kafka.settings import ClientSettings, client_settings
from sparkmirror.spark.worker import plan_row, read_plan


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stores"))


def cluster(alias: str, trust: Path | None = None) -> ClientSettings:
    given = {"bootstrap.servers": f"{alias.lower()}:9092"}
    if trust is not None:
        given |= {"security.protocol": "SSL", "ssl.truststore.type": "PEM"}
        given |= {"ssl.truststore.location": str(trust)}
    return client_settings(alias, given)


def plans(
    source: ClientSettings, target: ClientSettings, store: ClientSettings | None = None
) -> list[TaskPlan]:
    return [
        TaskPlan(
            flow="f",
            index=index,
            stamp=1,
            source=source,
            target=target,
            store=StoreAddress("o", "f", "A"),
            settings=CopySettings(),
            partitions=(),
            store_cluster=store,
        )
        for index in range(3)
    ]


def write(path: Path, text: str) -> None:
    """With a new stamp, however coarse the clock of the file system is."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(before + 10**9, before + 10**9))


def test_every_cluster_of_every_plan_gets_its_files(authority: Authority, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("source", "store")]
    for path in paths:
        write(path, authority.pem())
    source, store = cluster("A", paths[0]), cluster("C", paths[1])
    packed = PlanFiles().put_into(plans(source, cluster("B"), store))
    assert [plan.index for plan in packed] == [0, 1, 2]
    for path in paths:
        path.unlink()
    for plan in packed:
        row = plan_row(plan)
        assert repr(row).count("CERTIFICATE") >= 2  # it is sent …
        arrived = read_plan(pickle.loads(pickle.dumps(row)))  # noqa: S301 - as Spark hands it over
        assert "CERTIFICATE" not in repr(arrived)  # … and not shown
        assert arrived.source.security.files.read(str(paths[0])) == authority.pem().encode()
        assert arrived.target == cluster("B")
        assert arrived.store_cluster is not None
        assert arrived.store_cluster.security.files.read(str(paths[1]))


def test_a_plan_without_a_cluster_of_its_own_for_positions_stays_so() -> None:
    given = plans(cluster("A"), cluster("B"))
    assert PlanFiles().put_into(given) == given


def test_a_file_that_was_never_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Cluster A: ssl\.truststore\.location: .*none"):
        PlanFiles().put_into(plans(cluster("A", tmp_path / "none"), cluster("B")))


def test_a_change_is_told_when_the_file_is_written_to_its_end(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trust"
    write(path, authority.pem())
    given = plans(cluster("A", path), cluster("B"))
    files = PlanFiles()
    assert files.changed() == []
    files.put_into(given)
    assert files.changed() == files.changed() == []
    other = Authority(tmp_path / "other", "other").pem()
    with caplog.at_level(logging.WARNING):
        write(path, other[:100])
        for _ in range(3):
            assert files.changed() == []
    assert caplog.text.count("Copy tasks use what was read before.") == 1
    sent = files.put_into(given)[0].source.security.files
    assert sent.read(str(path)) == authority.pem().encode()  # half a file is not sent
    write(path, other)
    assert files.changed() == []  # it may still be written
    assert files.changed() == [str(path)]
    assert files.changed() == []  # told once
    assert files.put_into(given)[0].source.security.files.read(str(path)) == other.encode()
    assert files.changed() == files.changed() == []


def test_a_file_that_is_written_all_the_time_ends_a_job_once_a_minute(tmp_path: Path) -> None:
    now, token = 0.0, tmp_path / "token"
    given = {"bootstrap.servers": "a:9092", "security.protocol": "SASL_PLAINTEXT"}
    given |= {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
    }
    source = client_settings("A", given)
    files = PlanFiles(lambda: now)
    told = []
    for second in range(180):
        now = float(second)
        if second % 4 == 0:
            write(token, f"token {second}")
        if second == 0 or files.changed():
            told.append(second)
            files.put_into(plans(source, cluster("B")))
    assert len(told) in (3, 4)
    assert all(later - before >= 60 for before, later in pairwise(told[1:]))


def test_a_damaged_file_does_not_take_the_place_of_a_good_one(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trust = tmp_path / "trust.pem"
    authority.write_trust(trust, "PEM")
    files = PlanFiles()
    files.put_into(plans(cluster("A", trust), cluster("B")))
    good = trust.read_text()
    write(trust, good[:60] + "\u00a0\u00e9" + good[62:])
    assert files.changed() == files.changed() == []
    assert "Copy tasks use what was read before" in caplog.text


def test_a_file_that_is_gone_or_touched_is_no_change(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "trust"
    write(path, authority.pem())
    files = PlanFiles()
    given = plans(cluster("A", path), cluster("B"))
    files.put_into(given)
    write(path, authority.pem())
    assert files.changed() == files.changed() == []
    path.unlink()
    assert files.changed() == files.changed() == []
    sent = files.put_into(given)[0].source.security.files
    assert sent.read(str(path)) == authority.pem().encode()
