"""A secret planted in every place where one can be written: a full run, and it is found nowhere but there."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import resource
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import javaproperties
import psutil
import pytest
from certificates import KEY_PASSWORD, PASSWORD
from connect_worker import START_S, ConnectWorker, worker_properties
from kafka_tools import NewRecord, create_topic, end_offsets, produce, topics, wait_for
from planted import Planted
from repeating import Repeating
from secured import SecuredCluster, jaas, secured_cluster

from sparkmirror.config.permits import URLS_ALLOWED
from sparkmirror.processes import spawn
from sparkmirror.spark.gateway import java, spark_home
from sparkmirror.tools.clusters import free_port

MIRROR = "org.apache.kafka.connect.mirror"
FILES = "org.apache.kafka.common.config.provider.FileConfigProvider"
BASIC_AUTH = "org.apache.kafka.connect.rest.basic.auth.extension"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
SCRAM, PLAIN = "SCRAM-SHA-512", "PLAIN"
PATIENCE_S = 120.0
OPENED = ("java.lang", "java.lang.invoke", "java.nio", "java.net", "java.util", "sun.nio.ch")
KINDS = ("log", "REST", "Spark UI", "event log", "command line", "temporary file")
# The one file that is meant to hold a secret, as long as the JVM needs to read it; tested where it is made.
JVM_OPTIONS = re.compile(r"sparkmirror-\w+/options")
SCRAM_USERS = ("worker", "producer", "consumer", "admin", "target", "override")

pytestmark = pytest.mark.slow


@pytest.fixture
def planted() -> Planted:
    """With all that a run is told, whoever reads it."""
    found = Planted()
    for name in (*SCRAM_USERS, "source", "wrong", "oidc", "oidc-key", "rest", "unknown-worker"):
        found.secret(name)
    for name in ("unknown-connector", "number", "spark", "jvm", "provider", "unused"):
        found.secret(name)
    found.plant("store", PASSWORD)
    found.plant("key", KEY_PASSWORD)
    found.plant("rest header", f"rest:{found['rest']}")
    return found


@pytest.fixture
def cluster(tmp_path: Path, planted: Planted) -> Iterator[SecuredCluster]:
    directory = tmp_path / "brokers"
    directory.mkdir()
    with secured_cluster(directory, plain_users={"source": planted["source"]}) as found:
        for user in SCRAM_USERS:
            found.add_user(user, planted[user], [SCRAM])
        yield found


@contextmanager
def telltale_provider() -> Iterator[str]:
    """An OpenID provider that refuses everybody, and repeats in its answer what it was sent; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
            said = f"{self.headers.get('Authorization')} {sent}"
            body = json.dumps({"error": "invalid_client", "error_description": said}).encode()
            self.send_response(401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it has
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/token"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Run:
    """The worker's files, in one directory; its connectors refer to one of them for their secrets."""

    def __init__(self, directory: Path, cluster: SecuredCluster, planted: Planted) -> None:
        self._cluster, self._planted = cluster, planted
        self._home = directory / planted.control  # stands on the command line
        self._home.mkdir()
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        self.events = directory / "events"
        self.events.mkdir()
        self.ui = free_port()
        pem = cluster.authority.issue("target-client")
        self._key = pem.key_pem()
        in_file = cluster.authority.issue("source-client")
        self._keystore = in_file.store("PEM")
        for what, key in (("PEM key", self._key), ("key in a PEM file", in_file.key_pem())):
            for number, line in enumerate(key.splitlines()[1:-1]):
                if len(line) == 64:
                    planted.plant(f"line {number} of the {what}", line)
        values = {
            name: planted[name]
            for name in ("source", "target", "override", "wrong", "oidc", "oidc-key", "number")
        }
        values |= {"unknown": planted["unknown-connector"], "key": self._key}
        values |= {"chain": pem.chain_pem(), "store": PASSWORD}
        self._secrets = self._home / "secrets.properties"
        self._secrets.write_text(javaproperties.dumps(values, timestamp=False))

    def reference(self, name: str) -> str:
        return f"${{file:{self._secrets}:{name}}}"

    def login(self, user: str, secret: str, mechanism: str = SCRAM) -> dict[str, str]:
        trust = self._cluster.authority.store("JKS").as_truststore()
        client = self._cluster.client("SASL_SSL", mechanism, username=user, password=secret)
        return {**client, **trust}

    def worker(self, group: str, master: Mapping[str, str]) -> ConnectWorker:
        """A worker whose Spark is where `master` says."""
        planted = self._planted
        identity = self._cluster.authority.issue("worker").store("JKS", locked_key=True)
        https = self._cluster.authority.issue("rest").store("JKS", locked_key=True)
        logins = {"": "worker", "producer.": "producer", "consumer.": "consumer", "admin.": "admin"}
        port = free_port()
        users = self._home / "users.properties"
        users.write_text(f"rest={planted['rest']}\n")
        rest_jaas = self._home / "rest.jaas"
        rest_jaas.write_text(
            f'KafkaConnect {{ {BASIC_AUTH}.PropertyFileLoginModule required file="{users}"; }};'
        )
        properties = {
            **worker_properties(self._cluster.bootstrap("SASL_SSL"), group),
            **{
                prefix + name: value
                for prefix, user in logins.items()
                for name, value in self.login(user, planted[user]).items()
                if name != "bootstrap.servers"
            },
            **identity.as_keystore(),
            "listeners": f"http://127.0.0.1:{port},https://127.0.0.1:{free_port()}",
            **{f"listeners.https.{name}": value for name, value in https.as_keystore().items()},
            "rest.extension.classes": f"{BASIC_AUTH}.BasicAuthSecurityRestExtension",
            "mirror.rest.jaas.file": str(rest_jaas),
            "config.providers": "file",
            "config.providers.file.class": FILES,
            "config.providers.file.param.some.password": planted["provider"],
            "my.plugin.password": planted["unknown-worker"],
            "spark.app.name": planted.control,
            "spark.log.level": "info",
            "spark.ui.enabled": "true",
            "spark.ui.port": str(self.ui),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.eventLog.compress": "false",  # to be searched
            "spark.local.dir": str(self.temporary),
            "spark.hadoop.fs.s3a.secret.key": planted["spark"],
            "spark.driver.extraJavaOptions": (
                f"-Djavax.net.ssl.keyStorePassword={planted['jvm']} -Djava.io.tmpdir={self.temporary}"
            ),
            **master,
        }
        environment = {**os.environ, "TMPDIR": str(self.temporary)}
        return GuardedWorker(self._home, properties, environment, f"rest:{planted['rest']}")

    def connectors(self, topic: str, provider: str) -> dict[str, dict[str, str]]:
        """One of each kind, and some that cannot work; the secrets are references."""
        source = self.login("source", self.reference("source"), PLAIN)
        source |= self._keystore.as_keystore()  # its content travels to executors elsewhere
        source["ssl.truststore.password"] = self.reference("store")
        target = self.login("target", self.reference("target")) | {
            "ssl.truststore.password": self.reference("store"),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": self.reference("key"),
            "ssl.keystore.certificate.chain": self.reference("chain"),
        }
        override = jaas(SCRAM, username="override", password=self.reference("override"))
        common = {
            "source.cluster.alias": "A",
            "target.cluster.alias": "B",
            **_under("target.cluster", target),
            "tasks.max": "2",
            "producer.override.sasl.jaas.config": override,
            "my.plugin.secret": self.reference("unknown"),
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "replication.factor": "1",
        }
        good = {**common, **_under("source.cluster", source), "topics": topic}
        wrong = self.login("source", self.reference("wrong"), PLAIN)
        wrong["ssl.truststore.password"] = self.reference("store")
        asking = {
            **self.login("x", "y"),
            "ssl.truststore.password": self.reference("store"),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": provider,
            "sasl.oauthbearer.client.credentials.client.secret": self.reference("oidc-key"),
            "sasl.jaas.config": jaas(
                "OAUTHBEARER", clientId="me", clientSecret=self.reference("oidc")
            ),
        }
        return {
            "source": {**good, "connector.class": f"{MIRROR}.MirrorSourceConnector"},
            "checkpoint": {**good, "connector.class": f"{MIRROR}.MirrorCheckpointConnector"},
            "heartbeat": {**good, "connector.class": f"{MIRROR}.MirrorHeartbeatConnector"},
            "refused": {
                **good,
                **_under("source.cluster", wrong),
                "connector.class": f"{MIRROR}.MirrorSourceConnector",
            },
            "tokenless": {
                **good,
                **_under("source.cluster", asking),
                "connector.class": f"{MIRROR}.MirrorSourceConnector",
            },
        }


class GuardedWorker(ConnectWorker):
    """A worker that wants to be told who calls."""

    def __init__(
        self, home: Path, properties: Mapping[str, str], environment: Mapping[str, str], user: str
    ) -> None:
        super().__init__(home, properties, environment=environment)
        self._authorization = "Basic " + base64.b64encode(user.encode()).decode()

    def _call(
        self, method: str, path: str, sent: bytes | None, timeout: float
    ) -> tuple[int, dict[str, str], bytes]:
        headers = {"Authorization": self._authorization, "Content-Type": "application/json"}
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(
            address.hostname or "", address.port, timeout=timeout
        )
        try:
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text
        finally:
            connection.close()

    def raw(self, method: str, path: str, body: object = None) -> bytes:
        """Whatever is answered, with its headers."""
        sent = None if body is None else json.dumps(body).encode()
        status, headers, text = self._call(method, path, sent, 60.0)
        return f"{status} {headers}\n".encode() + text


def _under(prefix: str, client: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}.{name}": value for name, value in client.items()}


def test_planted_secrets_are_found_nowhere(
    tmp_path: Path, cluster: SecuredCluster, planted: Planted
) -> None:
    fill(cluster)
    run = Run(tmp_path, cluster, planted)

    def look_around() -> None:
        look_at_processes(worker.family(), planted)
        planted.look_into("temporary file", run.temporary, leave_out=JVM_OPTIONS)

    with (
        telltale_provider() as provider,
        run.worker("secrets", {URLS_ALLOWED: provider}) as worker,
        Repeating(look_around, 0.01),
    ):
        worker.wait_ready(START_S * 2)
        (run.temporary / "seen").write_text(planted.control)
        worker.request("PUT", "/admin/loggers/root", {"level": "DEBUG"})
        assert worker.get("/admin/loggers/sparkmirror.kafka.access.tls")["level"] == "DEBUG"
        configs = run.connectors("orders", provider)
        for name, config in configs.items():
            worker.put(name, config)
        worker.wait_running("source", 2, PATIENCE_S)
        wait_for("all is copied", lambda: copied(cluster) == 50, PATIENCE_S)
        assert "did not let us in with PLAIN as source" in worker.wait_failed("refused")
        assert "refused client me a token: HTTP 401" in worker.wait_failed("tokenless")
        look_at_rest(worker, configs, run, planted)
        look_at_spark(run.ui, planted)
        assert_no_cores(worker)
        end_abruptly(worker)
        wait_for("it copies again", lambda: goes_on(cluster), PATIENCE_S)
        assert worker.stop() == 0
    assert planted.control in worker.output  # Spark's log names its application
    planted.look("log", "worker.log", worker.log.read_bytes())
    planted.look_into("event log", run.events)
    planted.look_into("temporary file", run.temporary)
    left = {file.name for file in run.temporary.rglob("*") if file.is_file()}
    # A JVM that was killed leaves its libraries behind.
    assert {name for name in left if not re.fullmatch(r"seen|lib.*\.so(\.lck)?", name)} == set()
    planted.check(KINDS)


def test_executors_elsewhere_get_secrets_over_the_network_only(
    tmp_path: Path, cluster: SecuredCluster, planted: Planted
) -> None:
    fill(cluster)
    run = Run(tmp_path, cluster, planted)
    with SparkDaemons(tmp_path / "spark", planted.secret("authentication")) as daemons:
        settings = {
            "spark.master": daemons.url,
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "4",
            "spark.executor.extraJavaOptions": f"-Dcontrol={planted.control}",
            # With another master than a local one these options are arguments of spark-submit.
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={run.temporary}",
            "spark.ui.enabled": "false",
            **daemons.encryption,
        }
        worker = run.worker("secrets", settings)

        def look_around() -> None:
            look_at_processes([*worker.family(), *daemons.family()], planted)
            planted.look_into("temporary file", run.temporary)

        with worker, Repeating(look_around, 0.01):
            worker.wait_ready(START_S * 2)
            (run.temporary / "seen").write_text(planted.control)
            worker.request("PUT", "/admin/loggers/root", {"level": "DEBUG"})
            configs = run.connectors("orders", "http://127.0.0.1:1/token")
            for name in ("source", "refused"):
                worker.put(name, configs[name])
            wait_for("all is copied", lambda: copied(cluster) == 50, PATIENCE_S * 2)
            assert "did not let us in with PLAIN as source" in worker.wait_failed("refused")
            assert any("CoarseGrainedExecutorBackend" in line for line in daemons.command_lines())
            assert worker.stop() == 0
        planted.look("log", "worker.log", worker.log.read_bytes())
        planted.look_into("event log", run.events)
        planted.look_into("executor", daemons.directory / "work")
        assert (daemons.directory / "work").exists()
    planted.check(("log", "event log", "command line", "temporary file", "executor"))


class SparkDaemons:
    """Spark's own cluster, standalone: a master and a worker, which ask for a secret and encrypt what they say."""

    def __init__(self, directory: Path, secret: str) -> None:
        directory.mkdir()
        self.directory = directory
        self.url = f"spark://127.0.0.1:{free_port()}"
        self.encryption = {
            "spark.authenticate": "true",
            "spark.authenticate.secret": secret,
            "spark.network.crypto.enabled": "true",
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        settings = self.directory / "daemons.properties"
        settings.write_text(javaproperties.dumps(self.encryption, timestamp=False))
        port = self.url.rpartition(":")[2]
        given = ["--properties-file", str(settings), "--host", "127.0.0.1", "--webui-port", "0"]
        self._start("master.Master", [*given, "--port", port])
        places = ["--cores", "4", "--memory", "1g", "--work-dir", str(self.directory / "work")]
        wait_for("Spark's master", lambda: "I have been elected leader" in self._said("master"))
        self._start("worker.Worker", [*given, *places, self.url])
        wait_for("Spark's worker", lambda: "Registering worker" in self._said("master"))
        return self

    def _start(self, name: str, arguments: list[str]) -> None:
        command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
        command += ["-cp", f"{spark_home()}/jars/*", f"org.apache.spark.deploy.{name}", *arguments]
        log = self.directory / f"{name.partition('.')[0]}.log"
        # Executors are started by Spark's scripts, from where these say.
        home = {"SPARK_HOME": str(spark_home()), "SPARK_SCALA_VERSION": "2.13"}
        self._processes.append(spawn(command, log=log, env=os.environ | home))

    def _said(self, name: str) -> str:
        log = self.directory / f"{name}.log"
        return log.read_text() if log.exists() else ""

    def family(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            found = [psutil.Process(each.pid) for each in self._processes]
            return found + [child for each in found for child in each.children(recursive=True)]
        return []

    def command_lines(self) -> list[str]:
        return [" ".join(process.cmdline()) for process in self.family()]

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.family()):
            with contextlib.suppress(psutil.Error):
                process.kill()
        for daemon in self._processes:
            daemon.wait()


def fill(cluster: SecuredCluster) -> None:
    create_topic(cluster.open_bootstrap, "orders", 2)
    produce(cluster.open_bootstrap, "orders", [NewRecord(b"k", b"v", n % 2) for n in range(50)])


def look_at_processes(processes: Iterable[psutil.Process], planted: Planted) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            planted.look("command line", process.name(), "\0".join(process.cmdline()).encode())


def copied(cluster: SecuredCluster) -> int:
    known = "A.orders" in topics(cluster.open_bootstrap)
    return sum(end_offsets(cluster.open_bootstrap, "A.orders").values()) if known else 0


def goes_on(cluster: SecuredCluster) -> bool:
    """Another record, and another copy: what was killed is back."""
    produce(cluster.open_bootstrap, "orders", [NewRecord(b"k", b"v", 0)])
    there = sum(end_offsets(cluster.open_bootstrap, "orders").values())
    with contextlib.suppress(AssertionError):
        wait_for("a copy of each", lambda: copied(cluster) >= there, 5.0)
    return copied(cluster) >= there


def look_at_rest(
    worker: ConnectWorker, configs: Mapping[str, Mapping[str, str]], run: Run, planted: Planted
) -> None:
    """Every answer there is, to good requests and to bad ones."""
    assert isinstance(worker, GuardedWorker)
    paths = [
        "/",
        "/health",
        "/status",
        "/metrics",
        "/openapi.json",
        "/connectors",
        "/connectors?expand=status&expand=info",
        "/connector-plugins?connectorsOnly=false",
        "/connector-plugins/MirrorSourceConnector/config",
        "/admin/loggers",
        *(
            f"/connectors/{name}{rest}"
            for name in configs
            for rest in ("", "/config", "/status", "/tasks", "/tasks-config", "/topics", "/offsets")
        ),
        *(f"/connectors/{name}/tasks/0/status" for name in configs),
    ]
    answers = {path: worker.raw("GET", path) for path in paths}
    reference = run.reference("number")
    bad = {
        "name": "bad",
        **configs["source"],
        "tasks.max": reference,
        "producer.override.linger.ms": reference,
        "producer.override.my.password": reference,
        "errors.restart.max.attempts": reference,
        "topic.creation.enable": planted["unused"],
        "ssl.keystore.password": planted["unused"],
        "sasl.jaas.config": f'wrong {planted["unused"]} password="{planted["unused"]}"',
    }
    validate = "/connector-plugins/MirrorSourceConnector/config/validate"
    answers["validate"] = worker.raw("PUT", validate, bad)
    answers["validate good"] = worker.raw("PUT", validate, configs["source"])
    answers["classless"] = worker.raw("PUT", validate, {"ssl.key.password": planted["unused"]})
    answers["bad"] = worker.raw("PUT", "/connectors/bad/config", bad)
    assert b'"error_count":' in answers["validate"]
    assert answers["bad"].startswith(b"400")
    assert b"Invalid value ${file:" in answers["bad"]
    unread = {**configs["source"], "topics": f"${{file:{run.events}:nothing}}"}
    answers["unread"] = worker.raw("PUT", "/connectors/unread/config", unread)
    answers["broken"] = worker.raw("PUT", "/connectors/broken/config", [planted["unused"]])
    answers["stopped"] = worker.raw("POST", "/connectors/refused/restart?includeTasks=true")
    assert b"orders" in answers["/connectors/source/config"]
    for path, text in answers.items():
        planted.look("REST", path, text)


def look_at_spark(port: int, planted: Planted) -> None:
    """All pages that Spark serves of a running application, and what its own REST says."""
    base = f"http://127.0.0.1:{port}"
    applications = json.loads(fetched(f"{base}/api/v1/applications"))
    api = f"/api/v1/applications/{applications[0]['id']}"
    stages = json.loads(fetched(f"{base}{api}/stages"))
    jobs = json.loads(fetched(f"{base}{api}/jobs"))
    assert stages and jobs
    pages = [
        "/jobs/",
        "/stages/",
        "/stages/pools/",
        "/storage/",
        "/environment/",
        "/executors/",
        "/executors/threadDump/?executorId=driver",
        "/executors/heapHistogram/?executorId=driver",
        "/metrics/json/",
        f"{api}/environment",
        f"{api}/executors",
        f"{api}/allexecutors",
        f"{api}/jobs",
        f"{api}/stages?details=true",
        f"{api}/storage/rdd",
        *(f"/jobs/job/?id={job['jobId']}" for job in jobs),
        *(f"/stages/stage/?id={each['stageId']}&attempt={each['attemptId']}" for each in stages),
    ]
    for page in pages:
        planted.look("Spark UI", page, fetched(base + page))


def fetched(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - our own address
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        return error.read()


def assert_no_cores(worker: ConnectWorker) -> None:
    """No process of the run may write its memory to a file, however it ends."""
    family = worker.family()
    assert len(family) > 3
    assert {process.rlimit(psutil.RLIMIT_CORE)[0] for process in family} == {1}


def end_abruptly(worker: ConnectWorker) -> None:
    """Let a Python worker and the JVM end as they do after a crash: what they hold must go with them."""
    before = set(Path.cwd().iterdir())
    jvm = worker.jvms()[0]
    for process in (worker.python_workers()[0], jvm):
        process.send_signal(signal.SIGABRT)
        process.wait(30)
    left = {file.name for file in set(Path.cwd().iterdir()) - before}
    assert not [name for name in left if name.startswith(("core", "hs_err"))]


def test_the_search_finds_what_is_there(planted: Planted, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(f"… {planted['source']} …")
    planted.look_into("temporary file", tmp_path)
    with pytest.raises(AssertionError, match="temporary file"):
        planted.check([])


def test_core_files_would_be_written_otherwise() -> None:
    """What the run is checked for is not so by itself: this process may write as much as its owner allows."""
    assert resource.getrlimit(resource.RLIMIT_CORE) != (1, 1)
