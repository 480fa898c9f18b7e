"""mcp.json is found where people put it, and a file that can't be read disturbs nobody who needs no servers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from callboard.actors.work.mcp.files import MAX_SIZE, load_mcp
from callboard.protocol.errors import UsageError
from callboard.protocol.mcp.config import McpConfig, resolved

ONE = '{"mcpServers": {"one": {"command": "${BIN}"}}}'
TWO = '{"mcpServers": {"two": {"command": "x"}}}'


def test_without_a_file_there_are_no_servers(tmp_path: Path) -> None:
    config = load_mcp(tmp_path)
    assert config == McpConfig(file=str(tmp_path / "mcp.json"))
    with pytest.raises(UsageError, match=r"no MCP server 'x' in .*/mcp\.json; it has none"):
        config.get("x")


def test_loki_s_place_is_read(tmp_path: Path) -> None:
    (tmp_path / "functions").mkdir()
    file = tmp_path / "functions" / "mcp.json"
    file.write_text(ONE)
    config = load_mcp(tmp_path)
    assert (config.file, config.names, config.problems) == (str(file), ("one",), ())
    assert config.servers["one"].where == f"{file}:1"


def test_of_two_files_the_first_counts_and_the_other_is_warned_about(tmp_path: Path) -> None:
    (tmp_path / "functions").mkdir()
    (tmp_path / "mcp.json").write_text(ONE)
    (tmp_path / "functions" / "mcp.json").write_text(TWO)
    config = load_mcp(tmp_path)
    assert (config.file, config.names) == (str(tmp_path / "mcp.json"), ("one",))
    [problem] = config.problems
    assert (problem.severity, problem.file) == ("warning", str(tmp_path / "functions" / "mcp.json"))


def _directory(file: Path) -> None:
    file.mkdir()


def _latin(file: Path) -> None:
    file.write_bytes(b'{"mcpServers": "\xe9"}')


def _huge(file: Path) -> None:
    file.write_bytes(b" " * (MAX_SIZE + 1))


def _pipe(file: Path) -> None:
    os.mkfifo(file)


def _dangling(file: Path) -> None:
    file.symlink_to(file.parent / "nowhere")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_directory, "it is not a regular file"),
        (_latin, "it is not UTF-8 text (byte 16)"),
        (_huge, "it is larger than 1024 KiB"),
        (_pipe, "it is not a regular file"),
        (_dangling, "No such file or directory"),
    ],
)
def test_a_file_that_can_not_be_read_is_a_problem_and_no_exception(tmp_path: Path, make: object, why: str) -> None:
    assert callable(make)
    make(tmp_path / "mcp.json")
    config = load_mcp(tmp_path)
    [problem] = config.problems
    assert (problem.severity, problem.message) == ("error", f"the file can't be read: {why}")
    with pytest.raises(UsageError, match="can't be read"):
        config.get("x")


def test_secrets_come_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(ONE)
    secrets = {"BIN": "srv"}
    assert secrets.get("OTHER") is None
    assert resolved(load_mcp(tmp_path).get("one"), secrets).command == "srv"
