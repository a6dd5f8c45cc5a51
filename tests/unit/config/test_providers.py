"""Config providers: references to variables and files, resolved or explained."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.config.providers import resolve
from sparkmirror.errors import ConfigError

KAFKA = "org.apache.kafka.common.config.provider"


def declared(name: str, class_name: str, **params: str) -> dict[str, str]:
    keys = {"config.providers": name, f"config.providers.{name}.class": f"{KAFKA}.{class_name}"}
    dotted = {k.replace("_", "."): v for k, v in params.items()}
    return keys | {f"config.providers.{name}.param.{k}": v for k, v in dotted.items()}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    (tmp_path / "secrets.properties").write_text("user=u1\npassword=p 1\n")
    (tmp_path / "token").write_text("t0ken\n")
    return tmp_path


def test_the_three_standard_providers_need_no_declaration(secrets: Path) -> None:
    values = {
        "a": "${env:HOME_OF_A}/x",
        "b": f"user=${{file:{secrets}/secrets.properties:user}};"
        f"password=${{file:{secrets}/secrets.properties:password}}",
        "c": f"${{dir:{secrets}:token}}",
        "d": "plain",
    }
    assert resolve(values, {"HOME_OF_A": "/a"}) == {
        "a": "/a/x",
        "b": "user=u1;password=p 1",
        "c": "t0ken",
        "d": "plain",
    }


def test_a_declared_provider_has_the_name_it_was_given(secrets: Path) -> None:
    settings = declared("vault", "FileConfigProvider")
    values = {"p": f"${{vault:{secrets}/secrets.properties:user}}", "q": "${env:X}"}
    resolved = resolve(values, {"X": "x"}, settings)
    assert resolved == {"p": "u1", "q": "${env:X}"}, "declaring providers replaces the standard"


def test_an_unknown_provider_is_left_as_it_is() -> None:
    values = {"a": "${nope:x:y}", "b": "${nocolon}", "c": "$ENV {x}"}
    assert resolve(values, {}) == values


def test_values_of_references_are_not_resolved_again() -> None:
    assert resolve({"a": "${env:A}"}, {"A": "${env:B}", "B": "b"}) == {"a": "${env:B}"}


def test_a_provider_known_by_name_needs_no_class() -> None:
    assert resolve({"a": "${env:A}"}, {"A": "1"}, {"config.providers": "env"}) == {"a": "1"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"config.providers": "vault"}, r"config\.providers\.vault\.class is not set"),
        (
            {"config.providers": "v", "config.providers.v.class": "com.acme.Vault"},
            "com.acme.Vault, which is not available",
        ),
        (declared("f", "FileConfigProvider", allowed_paths="etc"), "the relative path etc"),
        (declared("e", "EnvVarConfigProvider", allowlist_pattern="*"), "allowlist.pattern"),
    ],
)
def test_wrong_declarations_are_explained(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve({"a": "b"}, {}, settings)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("${env:MISSING}", r"password refers to \$\{env:MISSING\}.*not set.*Set MISSING"),
        ("${env:a:B}", "have no path"),
        ("${file:/nowhere/x.properties:k}", "/nowhere/x.properties does not exist"),
        ("${file::k}", "names no path"),
        ("${dir:/nowhere:k}", "/nowhere has no file k"),
    ],
)
def test_a_reference_without_an_answer_names_key_and_remedy(reference: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve({"password": reference}, {})


def test_a_missing_key_of_a_file_is_named(secrets: Path) -> None:
    with pytest.raises(ConfigError, match="has no key nobody"):
        resolve({"a": f"${{file:{secrets}/secrets.properties:nobody}}"}, {})


def test_a_directory_gives_only_files_of_its_own(secrets: Path) -> None:
    (secrets / "inner").mkdir()
    with pytest.raises(ConfigError, match="has no file"):
        resolve({"a": f"${{dir:{secrets}/inner:../token}}"}, {})


def test_a_file_that_is_not_text_is_refused(secrets: Path) -> None:
    (secrets / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="binary cannot be read"):
        resolve({"a": f"${{dir:{secrets}:binary}}"}, {})


def test_allowed_paths_keep_references_inside(secrets: Path) -> None:
    settings = declared("f", "FileConfigProvider", allowed_paths=f"{secrets}/inner, {secrets}/b")
    outside = f"${{f:{secrets}/inner/../secrets.properties:user}}"
    with pytest.raises(ConfigError, match=r"allowed\.paths"):
        resolve({"a": outside}, {}, settings)
    settings = declared("f", "FileConfigProvider", allowed_paths=str(secrets))
    assert resolve({"a": outside}, {}, settings) == {"a": "u1"}


def test_the_allow_list_matches_whole_names() -> None:
    settings = declared("env", "EnvVarConfigProvider", allowlist_pattern="MM2_.*")
    environment = {"MM2_A": "1", "XMM2_A": "2"}
    assert resolve({"a": "${env:MM2_A}"}, environment, settings) == {"a": "1"}
    with pytest.raises(ConfigError, match="does not allow XMM2_A"):
        resolve({"a": "${env:XMM2_A}"}, environment, settings)


@given(st.dictionaries(st.text(), st.text(st.characters(exclude_characters="$"))))
def test_without_references_nothing_changes(values: dict[str, str]) -> None:
    assert resolve(values, {}, {}) == values


def test_a_link_that_leads_out_of_the_allowed_paths_is_not_followed(secrets: Path) -> None:
    inside, outside = secrets / "inside", secrets / "secrets.properties"
    inside.mkdir()
    (inside / "link.properties").symlink_to(outside)
    (inside / "token").symlink_to(secrets / "token")
    file = declared("f", "FileConfigProvider", allowed_paths=str(inside))
    with pytest.raises(ConfigError, match=r"allowed\.paths"):
        resolve({"a": f"${{f:{inside}/link.properties:user}}", **file})
    folder = declared("d", "DirectoryConfigProvider", allowed_paths=str(inside))
    with pytest.raises(ConfigError, match="has no file token"):
        resolve({"a": f"${{d:{inside}:token}}", **folder})
    (secrets / "way-in").symlink_to(inside)
    (inside / "own").write_text("mine")
    assert resolve({"a": f"${{d:{secrets}/way-in:own}}", **folder})["a"] == "mine"


def test_what_is_no_regular_file_is_not_read(secrets: Path) -> None:
    pipe = secrets / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="not a regular file"):
        resolve({"a": f"${{file:{pipe}:user}}"})
    with pytest.raises(ConfigError, match="has no file pipe"):
        resolve({"a": f"${{dir:{secrets}:pipe}}"})
