"""Queries in the validation of connector configs: who knows Spark is asked through a seam, and only about what can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkmirror.config.connect_validation import require_valid, validate
from sparkmirror.config.keys import Problem
from sparkmirror.config.query import FUNCTIONS, SQL, SQL_FILE, QueryConfig
from sparkmirror.errors import BadRequest
from tests.unit.config.test_connect_validation import FILES, LEAST, WORKER, errors, worker

REFUSED = "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'. (line 1, pos 13)\n\n== SQL ==\nSELECT value FORM records"


class Asked:
    """Says the same of every query, and remembers them."""

    def __init__(self, *problems: Problem) -> None:
        self._problems = problems
        self.queries: list[QueryConfig] = []

    def __call__(self, query: QueryConfig) -> tuple[Problem, ...]:
        self.queries.append(query)
        return self._problems


def test_a_refused_query_is_an_error_on_its_key() -> None:
    props = LEAST | {SQL: "SELECT value FORM records;"}
    asked = Asked(Problem(SQL, REFUSED))
    answer = validate(props, WORKER, asked)
    assert errors(answer) == {SQL: [REFUSED]}
    assert answer["error_count"] == 1
    assert [query.sql for query in asked.queries] == ["SELECT value FORM records"]
    with pytest.raises(BadRequest) as raised:
        require_valid(props, WORKER, asked)
    assert raised.value.message.startswith(
        f"Connector configuration is invalid and contains the following 1 error(s):\n{REFUSED}\n"
    )


def test_a_function_has_its_own_key() -> None:
    props = LEAST | {SQL: "SELECT f(value) AS value FROM records", FUNCTIONS: "nowhere:f"}
    able = worker(transform__functions__allowed="nowhere")
    said = errors(validate(props, able, Asked(Problem(FUNCTIONS, "no module"))))
    assert said == {FUNCTIONS: ["no module"]}


def test_a_query_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "query.sql"
    file.write_text("SELECT value FROM records\n")
    asked = Asked(Problem(SQL, REFUSED))
    able = worker(transform__sql__file__allowed__paths=str(tmp_path))
    said = errors(validate(LEAST | {SQL_FILE: str(file)}, able, asked))
    assert asked.queries[0].sql == "SELECT value FROM records"
    assert said == {
        SQL_FILE: [f"Spark refuses the query in {file}: [PARSE_SYNTAX_ERROR] (line 1, pos 13)."]
    }, "nothing of the file"


def test_nobody_is_asked_in_vain(tmp_path: Path) -> None:
    asked = Asked(Problem(SQL, REFUSED))
    sql = {SQL: "SELECT value FROM records"}
    for props, key in (
        (LEAST, None),
        (LEAST | {SQL: " "}, None),
        (LEAST | sql | {"connector.class": "MirrorHeartbeatConnector"}, None),
        (LEAST | sql | {SQL_FILE: "x.sql"}, SQL_FILE),
        (LEAST | {SQL_FILE: str(tmp_path / "nothing.sql")}, SQL_FILE),
        (LEAST | sql | {"transform.topics": "["}, "transform.topics"),
        (LEAST | sql | {"transform.memory.mb": "much"}, "transform.memory.mb"),
    ):
        assert [*errors(validate(props, WORKER, asked))] == ([] if key is None else [key])
    assert asked.queries == []


def test_hidden_keys_stay_hidden_while_they_are_right() -> None:
    answer = validate(LEAST | {SQL: "SELECT value FROM records"}, WORKER, Asked())
    names = {entry["value"]["name"] for entry in answer["configs"]}
    assert answer["error_count"] == 0
    assert not names & {SQL, SQL_FILE, FUNCTIONS}


def test_other_errors_stand_beside_it() -> None:
    props = LEAST | {SQL: "SELECT value FORM records", "tasks.max": "0"}
    assert {*errors(validate(props, WORKER, Asked(Problem(SQL, REFUSED))))} == {SQL, "tasks.max"}


def test_a_query_behind_a_reference(tmp_path: Path) -> None:
    file = tmp_path / "secrets.properties"
    file.write_text("sql=SELECT value FROM records WHERE key = 'hush-hush'\n")
    able = worker(config__providers="file", config__providers__file__class=FILES)
    reference = f"${{file:{file}:sql}}"
    asked = Asked()
    assert errors(validate(LEAST | {SQL: reference}, able, asked)) == {}
    assert asked.queries[0].sql.endswith("'hush-hush'")
    said = f"wrong: {asked.queries[0].sql}"
    answer = validate(LEAST | {SQL: reference}, able, Asked(Problem(SQL, said)))
    assert errors(answer) == {SQL: [f"wrong: {reference}"]}
