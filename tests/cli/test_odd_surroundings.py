"""`callboard` in odd surroundings: locales, long paths, no home, closed streams, and errors of any shape.

A Python of its own, and no fork of ours: locale and streams count when it starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.scripted_server import scripted_server

CALLBOARD = (sys.executable, "-m", "callboard.cli")
SAID = "Grüße 日本 👩‍👩‍👧"


async def program(
    models: FakeModels, base: Path, *words: str, environ: dict[str, str | None], **more: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run `callboard` with an environment of its own; a variable that is None is absent."""
    config = base / "config"
    if not config.exists():
        models.config_dir(config)
    work = base / "work"
    work.mkdir(exist_ok=True)
    usual = {"PATH": os.environ["PATH"], "HOME": str(base), "CALLBOARD_CONFIG_DIR": str(config)}
    env = {name: value for name, value in {**usual, **environ}.items() if value is not None}
    argv = more.pop("argv", [*CALLBOARD, *words])
    return await trio.run_process(
        argv, env=env, cwd=work, check=False, capture_stdout=True, capture_stderr=True, **more
    )


@pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.ISO-8859-1"])
@pytest.mark.parametrize("way", ["argument", "stdin"])
async def test_texts_of_any_language_pass_in_any_locale(
    fake_model: FakeModels, tmp_path: Path, locale: str, way: str
) -> None:
    fake_model.script(SAID)
    words, given = (["ask", SAID], b"") if way == "argument" else (["ask"], SAID.encode())
    environ: dict[str, str | None] = {"LC_ALL": locale, "LANG": locale}
    done = await program(fake_model, tmp_path, *words, environ=environ, stdin=given)
    assert (done.returncode, done.stdout.decode()) == (0, f"{SAID}\n"), done.stderr
    assert SAID in fake_model.requests[-1].json["messages"][-1]["content"]


TOOLS = '''
def note(text: str):
    """Note a text.

    Args:
        text: What.
    """
    return "noted " + text + input("Sure? ")
'''


async def test_directories_with_paths_longer_than_a_sockets_work(fake_model: FakeModels, tmp_path: Path) -> None:
    """A socket's path has 107 bytes at most; tools that ask and MCP servers have one."""
    long = tmp_path / ("l" * 70) / ("m" * 70)
    for name in ("tmp", "state", "run", "home", "cache"):
        (long / name).mkdir(parents=True, mode=0o700)
    agent = fake_model.config_dir(tmp_path / "config") / "agents" / "clerk"
    agent.mkdir(parents=True)
    (agent / "config.yaml").write_text("name: clerk\nmcp_servers: [s]\n")
    (agent / "tools.py").write_text(TOOLS)
    server = tmp_path / "server.py"
    server.write_text(scripted_server("return 'of the server'", say={}))
    entry = {"command": sys.executable, "args": [str(server)], "trust": "full"}
    (tmp_path / "config" / "mcp.json").write_text(json.dumps({"mcpServers": {"s": entry}}))
    fake_model.script(Reply(calls=[("note", {"text": "this"})]), Reply(calls=[("s__say", {})]), "done")
    names = {"TMPDIR": "tmp", "HOME": "home", "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run"}
    environ: dict[str, str | None] = {
        **{variable: str(long / name) for variable, name in names.items()},
        "XDG_CACHE_HOME": str(long / "cache"),
    }
    words = ("run", "clerk", "go", "--yes", "--answer", " indeed", "--sandbox", "off")
    done = await program(fake_model, tmp_path, *words, environ=environ)
    assert done.returncode == 0, done.stderr
    results = [text for request in fake_model.requests for text in request.results]
    assert "noted this indeed" in str(results)
    assert "of the server" in str(results)


BARE: dict[str, dict[str, str | None]] = {
    "nothing is said of the user": dict.fromkeys(("HOME", "USER", "LOGNAME", "TERM", "LANG", "SHELL"), None),
    "no directory can be made": dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"), "/proc/nowhere"),
}


@pytest.mark.parametrize("environ", BARE.values(), ids=BARE)
async def test_a_bare_container_is_enough(
    fake_model: FakeModels, tmp_path: Path, environ: dict[str, str | None]
) -> None:
    fake_model.script("hello")
    done = await program(fake_model, tmp_path, "ask", "hi", environ=environ)
    assert (done.returncode, done.stdout) == (0, b"hello\n"), done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("redirected", ["<&-", "2>&-", ">&-", "| true"])
async def test_a_stream_that_is_closed_costs_no_traceback(
    fake_model: FakeModels, tmp_path: Path, redirected: str
) -> None:
    fake_model.script("hello")
    line = f'"$@" {redirected}'
    done = await program(fake_model, tmp_path, environ={}, argv=["bash", "-c", line, "bash", *CALLBOARD, "ask", "hi"])
    assert b"Traceback" not in done.stderr
    if redirected in ("<&-", "2>&-"):
        assert (done.returncode, done.stdout) == (0, b"hello\n")


REFUSALS: dict[str, bytes] = {
    "an object with a message": b'{"error": {"message": "no WHY", "type": "x"}}',
    "a text": b'{"error": "model not found WHY"}',
    "a list": b'[{"error": {"code": 400, "message": "bad WHY", "status": "INVALID_ARGUMENT"}}]',
    "FastAPI's list": b'{"detail": [{"loc": ["body", "x"], "msg": "wrong WHY", "type": "value_error"}]}',
    "FastAPI's text": b'{"detail": "no such WHY"}',
    "vLLM's": b'{"object": "error", "message": "no WHY", "type": "BadRequestError", "code": 400}',
    "another key": b'{"code": "InvalidParameter", "msg": "no WHY"}',
    "JSON within a text": b'{"error": {"message": "{\\"error\\": {\\"message\\": \\"inner WHY\\"}}", "code": 400}}',
    "several": b'{"errors": [{"code": 1, "message": "no WHY"}], "success": false}',
    "plain text": b"upstream says WHY",
}


@pytest.mark.parametrize("body", REFUSALS.values(), ids=REFUSALS)
async def test_what_a_provider_says_of_a_refusal_reaches_the_user(
    fake_model: FakeModels, tmp_path: Path, body: bytes
) -> None:
    fake_model.script(Reply(status=400, raw=body))
    done = await program(fake_model, tmp_path, "ask", "hi", environ={})
    assert done.returncode == 1
    assert b"WHY" in done.stderr
    assert b"Traceback" not in done.stderr
