"""`callboard run` with a home directory that can't be written to: scripts, tools and MCP servers work as elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.mcp_processes import SERVERS
from support.starter import CALLBOARD

GRAPH = """
name: g
start: one
nodes:
  one: {type: script, script: one.sh, next: done}
  done: {type: end, output: "{{output}}"}
"""

SCRIPT = """
set -e
echo kept > "${TMPDIR:-/tmp}/x"
if [ -n "$npm_config_cache" ]; then mkdir -p "$npm_config_cache/x"; fi
echo '{"output": "it is done"}'
"""


TOOL = """
# @cmd Keep something.
keep() {
    echo kept > "$LLM_TOOL_CACHE_DIR/x"
    cat "$LLM_TOOL_CACHE_DIR/x" >> "$LLM_OUTPUT"
}
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A read-only directory."""
    home = tmp_path / "home"
    home.mkdir()
    if os.getuid():
        home.chmod(0o500)
    elif (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", home], check=False, capture_output=True
        ).returncode
    ):
        pytest.skip("root may write everywhere, and may not mount here")
    yield home
    if not os.getuid():
        subprocess.run(["umount", "--lazy", home], check=True)


async def run(home: Path, config: Path, *words: str) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a command; nothing is left in its temporary directory."""
    place = home.parent
    for name in ("tmp", "work"):
        (place / name).mkdir(exist_ok=True)
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(place / "tmp"),
        "CALLBOARD_CONFIG_DIR": str(config),
    }
    argv = [*CALLBOARD, "run", *words, "--yes"]
    done = await trio.run_process(
        argv, env=environ, cwd=place / "work", capture_stdout=True, capture_stderr=True, check=False
    )
    assert list((place / "tmp").glob("callboard-*/*")) == []
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("sandbox", ["workspace", "off"])
async def test_a_script_runs(home: Path, tmp_path: Path, fake_model: FakeModels, sandbox: str) -> None:
    config = fake_model.config_dir(tmp_path / "config")
    (config / "agents" / "g").mkdir(parents=True)
    (config / "agents" / "g" / "graph.yaml").write_text(GRAPH)
    (config / "agents" / "g" / "one.sh").write_text(SCRIPT)
    code, out, err = await run(home, config, "g", "x", "--sandbox", sandbox)
    assert (code, out) == (0, "it is done\n"), err


@pytest.mark.parametrize("sandbox", ["workspace", "off"])
async def test_tools_and_servers_run(home: Path, tmp_path: Path, fake_model: FakeModels, sandbox: str) -> None:
    config = fake_model.config_dir(tmp_path / "config")
    agent = config / "agents" / "a"
    agent.mkdir(parents=True)
    agent.joinpath("config.yaml").write_text(
        "name: a\nmcp_servers: [s]\nmcp_tools: direct\nglobal_tools: [execute_command]\n"
    )
    agent.joinpath("tools.sh").write_text(TOOL)
    tiny = str(SERVERS / "tiny.sh")
    (config / "mcp.json").write_text(f'{{"mcpServers": {{"s": {{"command": "/bin/sh", "args": ["{tiny}"]}}}}}}')
    calls = [("s__pid", {}), ("execute_command", {"command": "echo $((6 * 7)); touch made"}), ("keep", {})]
    fake_model.script(Reply(calls=calls), Reply(text="done"))
    code, out, err = await run(home, config, "a", "x", "--sandbox", sandbox)
    assert (code, out) == (0, "done\n"), err
    results = [message["content"] for message in fake_model.requests[-1].json["messages"] if message["role"] == "tool"]
    assert results[0].strip().isdecimal(), results
    assert "42" in results[1]
    assert "kept" in results[2]
    assert (tmp_path / "work" / "made").exists()
