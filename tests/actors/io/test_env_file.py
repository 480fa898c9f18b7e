"""`.env` files as data, and the user's own in the environment of the program."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.messages import says

from callboard.actors.io.environment import load_env_file, load_key_files, read_dotenv
from callboard.protocol.errors import ConfigError


def test_values_quotes_comments_and_export(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text(
        "\ufeff# a comment\n\nPLAIN=a b # not this\nexport EXPORTED = x\nEMPTY=\nHASH=a#b\nURL=http://x/#y\n"
        'SINGLE=\'$HOME # "kept"\' # comment\nDOUBLE="a\\n\\"b\\" \\$x \\q"\n'
        'LINES="one\ntwo"\nPLAIN=again\r\nNOT=$(run `me`)\nLAST=no newline',
        encoding="utf-8",
    )
    assert read_dotenv(file) == {
        "PLAIN": "again",
        "EXPORTED": "x",
        "EMPTY": "",
        "HASH": "a#b",
        "URL": "http://x/#y",
        "SINGLE": '$HOME # "kept"',
        "DOUBLE": 'a\n"b" $x \\q',
        "LINES": "one\ntwo",
        "NOT": "$(run `me`)",
        "LAST": "no newline",
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("A=1\nrubbish here\n", says("io.environment._parse", file="….env", line=2)),
        ("A=1\n\n2B=x\n", says("io.environment._parse", file="….env", line=3)),
        ("A='x\n", says("io.environment._value", where="….env:1: A")),
        ('A="x"y\n', says("io.environment._value.2", where="….env:1: A")),
        ("A=\0\n", says("io.environment._parse.2", file="….env", line=1, name="A")),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / ".env").write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        read_dotenv(tmp_path / ".env")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"A=\xff")
    with pytest.raises(ConfigError, match=says("io.environment.read_dotenv")):
        read_dotenv(tmp_path / ".env")
    (tmp_path / "dir" / ".env").mkdir(parents=True)
    with pytest.raises(ConfigError, match=says("io.environment.read_dotenv.2")):
        read_dotenv(tmp_path / "dir" / ".env")


def test_what_is_set_already_stays_even_if_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=file\nB=file\nC=file\n")
    environ = {"A": "set", "B": ""}
    assert load_env_file(tmp_path, environ) == ["C"]
    assert environ == {"A": "set", "B": "", "C": "file"}


def test_a_file_does_not_say_which_file_is_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("CALLBOARD_CONFIG_DIR=/elsewhere\nLOKI_ENV_FILE=/elsewhere\nA=1\n")
    environ: dict[str, str] = {}
    assert load_env_file(tmp_path, environ) == ["A"]
    assert environ == {"A": "1"}


@pytest.mark.parametrize("variable", ["CALLBOARD_ENV_FILE", "LOKI_ENV_FILE"])
def test_another_file_may_be_named(tmp_path: Path, variable: str) -> None:
    (tmp_path / ".env").write_text("A=usual\n")
    (tmp_path / "other").write_text("A=other\n")
    environ = {variable: str(tmp_path / "other")}
    load_env_file(tmp_path, environ)
    assert environ["A"] == "other"
    with pytest.raises(ConfigError, match=f"{variable} names '.*', and there is no such file"):
        load_env_file(tmp_path, {variable: str(tmp_path / "none")})


def test_without_a_file_nothing_is_set(tmp_path: Path) -> None:
    assert load_env_file(tmp_path / "none", {}) == []


@given(st.text(st.sampled_from("AB=\"'\\\n #$\r\te x\0\ufeff")))
@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / ".env").write_text(text, "utf-8", newline="")
    try:
        found = read_dotenv(tmp_path / ".env")
    except ConfigError:
        return
    assert all(name.isidentifier() and "\0" not in value for name, value in found.items())


def test_a_long_file_takes_time_in_proportion(tmp_path: Path) -> None:
    """Lines are counted once: counted anew for each, these would take minutes."""
    (tmp_path / ".env").write_text("A=1\n" * 200_000)
    assert read_dotenv(tmp_path / ".env") == {"A": "1"}


def test_files_of_keys_set_what_is_not_set(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("sk-file\n")
    environ = {"A_API_KEY_FILE": str(file), "B_API_KEY_FILE": str(file), "B_API_KEY": "own", "C_API_KEY_FILE": "/none"}
    load_key_files(environ)
    assert environ.get("A_API_KEY") == "sk-file"
    assert (environ["B_API_KEY"], environ.get("C_API_KEY")) == ("own", None)
