"""The command `check`, as far as it needs no cluster."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner

from sparkmirror.cli_check import check
from sparkmirror.errors import ConfigError
from sparkmirror.preflight.findings import Report, Section, error, note, ok
from sparkmirror.tools.acls_page import PAGE, acls_page
from sparkmirror.tools.check_view import shown, summary


def test_the_page_of_acls_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == acls_page(), (
        "run python -m sparkmirror.tools.acls_page"
    )


def test_how_a_report_is_shown() -> None:
    section = Section(
        "flow A->B", [ok("a", "Well."), error("b", "Bad.", "Mend it."), note("c", "So.")]
    )
    lines = [line.plain for line in shown(Report([section]))]
    assert lines == [
        "flow A->B",
        "  ERROR    Bad.",
        "           Mend it.",
        "  note     So.",
        "  ok       Well.",
        "",
        "1 error, 1 note.",
    ]
    assert summary(Report([])) == "Nothing is wrong, as far as can be seen."
    assert Report([section]).exit_code == 1


def test_a_log_is_explained(tmp_path: Path) -> None:
    log = tmp_path / "mm2.log"
    log.write_text("ERROR WorkerSourceTask{id=x-0} Failed to commit offsets\n")
    done = CliRunner().invoke(check, ["--log", str(log)])
    assert done.exit_code == 1
    assert "offset.storage.topic" in done.output
    log.write_text("INFO\n")
    assert CliRunner().invoke(check, ["--log", str(log), "--json"]).exit_code == 0


def test_wrong_input(tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing")
    done = CliRunner().invoke(check, [nothing])
    assert isinstance(done.exception, ConfigError)
    assert done.exception.exit_code == 2
    as_json = CliRunner().invoke(check, [nothing, "--json"])
    assert as_json.exit_code == 2
    assert "does not exist" in json.loads(as_json.output)["error"]
    assert CliRunner().invoke(check, []).exit_code == 2


def test_unreachable_clusters_take_no_longer_than_they_may(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A,B\nA->B.enabled = true\nA.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:1\n"
    )
    done = CliRunner().invoke(check, [str(file), "--json", "--timeout", "5"])
    assert done.exit_code == 1
    answer = json.loads(done.output)
    clusters = [s for s in answer["sections"] if s["title"].startswith("cluster")]
    assert [s["level"] for s in clusters] == ["error", "error"]


class _Worker(http.server.BaseHTTPRequestHandler):
    """A worker that has one connector, without a class."""

    authorization: ClassVar[str | None] = None

    def do_GET(self) -> None:
        _Worker.authorization = self.headers.get("Authorization")
        is_known = self.path == "/connectors/mm2-src/config"
        body = json.dumps({"connector.class": "org.Foo"} if is_known else {}).encode()
        self.send_response(200 if is_known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Quietly."""


@pytest.fixture
def url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Worker)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_connector_of_a_worker(url: str) -> None:
    done = CliRunner().invoke(check, ["mm2-src", "--url", url])
    assert isinstance(done.exception, ConfigError)
    assert "org.Foo is not a connector that runs here" in str(done.exception)
    unknown = CliRunner().invoke(check, ["other", "--url", url])
    assert "has no connector other" in str(unknown.exception)
    nobody = CliRunner().invoke(check, ["x", "--url", "http://user:hunter22@127.0.0.1:1"])
    assert isinstance(nobody.exception, ConfigError)
    assert "hunter22" not in str(nobody.exception)


def test_a_login_in_the_address_of_a_worker(url: str) -> None:
    address = url.replace("http://", "http://user:pass%3Aword@")
    CliRunner().invoke(check, ["mm2-src", "--url", address])
    assert _Worker.authorization == "Basic " + base64.b64encode(b"user:pass:word").decode()
