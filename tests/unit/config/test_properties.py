"""Property files: what Java reads is what we read."""

from __future__ import annotations

from pathlib import Path

import javaproperties
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkmirror.config.properties import load_properties, read_properties
from sparkmirror.errors import ConfigError


def write(directory: Path, text: str) -> Path:
    path = directory / "mm2.properties"
    path.write_bytes(text.encode("iso-8859-1"))
    return path


def test_reads_comments_continuations_separators_and_escapes(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "# comment\n! another\nclusters = A, \\\n    B\nA.bootstrap.servers: a:9092\n"
        "blank value\nempty=\npath=C:\\\\data\nname=caf\\u00e9\nkey\\ with\\ blanks=1\n",
    )
    assert read_properties(path) == {
        "clusters": "A, B",
        "A.bootstrap.servers": "a:9092",
        "blank": "value",
        "empty": "",
        "path": "C:\\data",
        "name": "café",
        "key with blanks": "1",
    }


def test_bytes_are_latin_1_and_the_last_of_two_equal_keys_counts(tmp_path: Path) -> None:
    assert read_properties(write(tmp_path, "a=1\nb=é\na=2\n")) == {"a": "2", "b": "é"}


def test_a_blank_at_the_end_of_a_line_does_not_change_a_value(tmp_path: Path) -> None:
    path = write(tmp_path, "A->B.enabled = true \t\nx=\\u00a0y\n")
    assert read_properties(path)["A->B.enabled"] == "true"
    assert load_properties(path)["A->B.enabled"] == "true \t"
    assert read_properties(path)["x"] == "\u00a0y", "only what Java trims is trimmed"


def test_says_which_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.properties does not exist"):
        read_properties(tmp_path / "nowhere.properties")


def test_refuses_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory"):
        read_properties(tmp_path)


def test_refuses_a_path_through_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Not a directory"):
        read_properties(write(tmp_path, "a=1") / "b")


def test_refuses_a_broken_escape(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mm2\.properties is not a properties file.*four hexa"):
        read_properties(write(tmp_path, "a=C:\\users\n"))
    with pytest.raises(ConfigError, match="line 2 has") as caught:
        read_properties(write(tmp_path, "a=\\u00e9 \\\\under\nssl.key.password=x\\unspeakable\n"))
    assert "nspe" not in str(caught.value), "it may be part of a password"


_WORDS = st.text(st.characters(max_codepoint=0x2FF, exclude_categories=["Cs"]), min_size=1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.dictionaries(_WORDS, _WORDS, max_size=5))
def test_reads_back_what_a_java_writer_wrote(tmp_path: Path, properties: dict[str, str]) -> None:
    assert load_properties(write(tmp_path, javaproperties.dumps(properties))) == properties
