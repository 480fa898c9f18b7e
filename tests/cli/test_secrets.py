"""Secrets of the vault reach those that they are for, and no other place: a chat, commands, a server, all their files.

A home has secrets in the key of a client, in the environment of an MCP server, of one that does not start, and in an
agent's variable; one of them is in no vault but in the environment. Its model calls tools that print them (also in
base64), says them itself, in pieces of five letters, and its provider quotes the key that it refuses.
tests/support/planted_secrets.py looks for them in every byte.

Where they may be is named here, each place with its reason; see `ALLOWED` and the tests.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import trio
from qa.chat import Chat
from qa.home import QaHome, open_qa_home
from qa.terminal import ENTER
from support.control_hub import Client
from support.fake_models import Reply, Request
from support.mcp_entries import SCRIPTED
from support.planted_secrets import CommandLines, Planted
from support.traced import Traced
from support.waiting import PATIENCE, until
from trio_websocket import open_websocket_url

import callboard
from callboard.actors.front.server.serving import HttpServer, ServeOptions
from callboard.actors.front.server.token_file import read_servers
from callboard.actors.io import secret_redaction
from callboard.actors.io.vault.file import VaultFile
from callboard.actors.io.vault.keys import IdentityFile
from callboard.actors.work.models.recorder import Recorder
from callboard.cli import main

KEPT = {
    "CLIENT_KEY": 'wk"Client+Key/9f2%Lq7',
    "SERVER_TOKEN": 'wk"Server+Token/4b\\7%Zx',
    "BROKEN_TOKEN": "wk-Broken-Token/77aa&Qp",
    "TOOL_SECRET": 'wk"Tool+Secret/\u00fc\\5c%Mn',
}
AROUND = {"OUTSIDE": 'wk"Outside+Word/3d%Kp'}
"""In the environment: `{{OUTSIDE}}`."""
TYPED, OTHER = "wk-Typed-Secret/1a2b3c&D", "wk-Other-Secret/9z8y7x&W"
PLANTED = Planted(**KEPT, **AROUND, TYPED=TYPED, OTHER=OTHER)
WRITTEN = ["SERVER_TOKEN", "OUTSIDE"]
ALLOWED = {
    "work/out.txt": WRITTEN,  # what a model has a tool write into a file is as it says
    "state/callboard/changes/blobs/*": WRITTEN,  # what stood in that file before it was written again; 0600
}
"""Files that hold a secret in clear. The vault is none of them: it is encrypted, and so nothing is found in it."""

BROKEN = "import os, sys; print('cannot start with ' + os.environ['TOKEN'], sys.argv, file=sys.stderr); sys.exit(3)"
AGENT = """
name: keeper
instructions: 'Work with {{secret}}.'
mcp_servers: [srv, broken]
global_tools: [fs_write]
variables:
  - {name: secret, description: d, default: '{{TOOL_SECRET}}'}
"""
TOOLS = """#!/usr/bin/env bash
# @cmd Tell it
tell() { echo "told: $LLM_AGENT_VAR_SECRET" >> "$LLM_OUTPUT"; echo "printed: $LLM_AGENT_VAR_SECRET"; }
# @cmd Tell it in base64
coded() { printf %s "x$LLM_AGENT_VAR_SECRET" | base64 -w0 >> "$LLM_OUTPUT"; }
# @cmd Fail over it
fail() { echo "wrong: $LLM_AGENT_VAR_SECRET" >&2; exit 3; }
# @cmd Take it
# @option --text <TEXT>
take() { echo "took it" >> "$LLM_OUTPUT"; }
eval "$(argc --argc-eval "$0" "$@")"
"""
CALLS = [
    ("tell", {}),
    ("coded", {}),
    ("srv__env", {"name": "TOKEN"}),
    ("fail", {}),
    ("take", {"text": KEPT["TOOL_SECRET"]}),
    ("srv__env", {"name": "MORE"}),
    ("fs_write", {"path": "out.txt", "contents": f"key: {KEPT['SERVER_TOKEN']}\nmore: {AROUND['OUTSIDE']}\n"}),
]
SAID = f"Done: {KEPT['TOOL_SECRET']} and {KEPT['SERVER_TOKEN']}. Bye."


def answer(request: Request) -> Reply | str:
    """A model that calls all tools, then says what it can't have learnt of them; and a provider that quotes a key."""
    if "quote" in request.prompt:
        return Reply(status=400, error=f"the key {request.headers['authorization']} is no good")
    if "work" not in request.prompt:
        return "You said something."
    done = len(request.results)
    return Reply(calls=[CALLS[done]]) if done < len(CALLS) else Reply(SAID, reasoning=f"I know it: {SAID}")


@pytest.fixture(scope="module")
def qa_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QaHome]:
    pytest.importorskip("pyrage", reason="the extra `vault` is not installed")
    with open_qa_home(tmp_path_factory.mktemp("home")) as qa_home:
        tmp, home = qa_home.config.parent / "tmp", qa_home.config / "agents" / "keeper"
        tmp.mkdir(mode=0o700)
        qa_home.environ |= {"TMPDIR": str(tmp), "CALLBOARD_LOG": "trace", **AROUND}
        home.mkdir(parents=True)
        (home / "config.yaml").write_text(AGENT)
        (home / "tools.sh").write_text(TOOLS)
        (home / "tools.sh").chmod(0o755)
        env = {"TOKEN": "{{SERVER_TOKEN}}", "MORE": "{{OUTSIDE}}"}
        servers = {
            "srv": {"command": sys.executable, "args": ["-S", str(SCRIPTED)], "env": env},
            "broken": {"command": sys.executable, "args": ["-Sc", BROKEN], "env": {"TOKEN": "{{BROKEN_TOKEN}}"}},
        }
        (qa_home.config / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        identity = IdentityFile(qa_home.config.parent / "state" / "callboard" / "vault" / "identity.txt")
        with umask(0):
            VaultFile(qa_home.config / "vault.age", identity).change(lambda secrets: secrets.update(KEPT))
        qa_home.settings(**settings(qa_home))
        qa_home.models.answer_with(answer)
        yield qa_home


def settings(qa_home: QaHome) -> dict[str, Any]:
    models = [{"name": "model", "max_input_tokens": 100_000}]
    client = {"type": "openai-compatible", "name": "fake", "api_base": qa_home.models.openai_base, "models": models}
    client["api_key"] = "{{CLIENT_KEY}}"
    return {
        "clients": [client],
        "permissions": {"*": "allow"},
        "save": True,
        "save_session": True,
        "keep_requests": True,
    }


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def in_files(qa_home: QaHome) -> list[str]:
    """What is found in all files of the person's: their own, state, cache, temporary ones, and where we work."""
    return PLANTED.below(qa_home.config.parent, allowed=ALLOWED)


def open_to_others(qa_home: QaHome) -> list[str]:
    """Files, directories and sockets that others than their owner may read, of those that a program has made."""
    made = [qa_home.config.parent / name for name in ("state", "cache", "runtime", "tmp")]
    made += [qa_home.config / name for name in ("sessions", "messages.md", "vault.age")]
    paths = [path for top in made if top.exists() for path in (top, *top.rglob("*")) if not path.is_symlink()]
    return [f"{path}: {path.stat().st_mode & 0o777:o}" for path in paths if path.stat().st_mode & 0o077]


LOOKING = (".info", ".info agent", ".set temperature 0.5", ".prompt last", ".context", ".cost", ".tools", ".mcp")
LOOKING += (".info session", ".copy", ".diff", ".list models", ".todo", ".ps", ".reasoning null")


def test_a_chat_at_a_terminal(qa_home: QaHome) -> None:
    chat = Chat(qa_home)
    with CommandLines() as ps, umask(0):
        chat.begin(**settings(qa_home))
        terminal = chat.terminal
        chat.into(".session kept", "s:kept")
        chat.say("hello", "something")
        chat.out(".exit session", "s:")
        chat.into(".agent keeper named", "a:keeper")
        shown = chat.say("work now", r"Bye\.")
        assert secret_redaction.PUT in shown
        for line in LOOKING:
            terminal.line(line)
            chat.idle()
        chat.edits(".edit session")
        chat.say("quote it", "no good")
        chat.say(
            "!cat /proc/$(tr -dc 0-9 < /proc/$PPID/cmdline)/environ | tr '\\0' '\\n' | grep -a SECRET; echo done",
            "^done",
        )
        chat.out(".exit agent", "a:")
        terminal.line(".vault add TYPED")
        terminal.shows("hidden")
        terminal.choose(TYPED + ENTER)
        terminal.shows("TYPED is stored")
        chat.say(".vault list", "TYPED")
        assert PLANTED.found(terminal.raw) == []
        # from here on the person sees, and types, what is theirs
        chat.say(".vault get TYPED", "^wk-Typed")
        chat.say(f"I tell you {TYPED}", "something")
        chat.into(".session kept", "s:kept")
        chat.say(f"I tell you {TYPED} and {KEPT['CLIENT_KEY']}", "something")
        terminal.press("\x04")
        assert terminal.ended() == 0
    chat.close()
    assert PLANTED.found(terminal.raw) == ["CLIENT_KEY as it is", "TYPED as it is"]
    assert PLANTED.found(b"\n".join(ps.seen)) == []
    assert in_files(qa_home) == []
    assert open_to_others(qa_home) == []
    used = {request.headers["authorization"] for request in qa_home.models.requests}
    assert used == {f"Bearer {KEPT['CLIENT_KEY']}"}
    names = {path.name for path in qa_home.config.parent.rglob("*") if path.is_file()}
    assert {"messages.md", "state.yaml", "last-reply.txt", "events.jsonl", "requests.1.jsonl"} <= names
    assert [*(qa_home.config.parent / "state" / "callboard" / "history").iterdir()]
    assert [*(qa_home.config.parent / "state" / "callboard" / "changes").rglob("runs/*")]


COMMANDS: list[tuple[int, list[str]]] = [
    (0, ["ask", "hello", "-o", "json"]),
    (1, ["ask", "quote it", "-o", "json"]),
    (0, ["run", "keeper", "work now", "-o", "json", "-s", "mine"]),
    (0, ["run", "keeper", "work now", "-o", "stream-json", "-v"]),
    (1, ["run", "keeper", "quote it", "-v"]),
    (0, ["run", "keeper", "work now", "--dry-run"]),
    (0, ["loki", "-a", "keeper", "--dry-run", "work now"]),
    (0, ["loki", "--info"]),
    (0, ["loki", "--tail-logs"]),
    (0, ["runs", "list", "-o", "json"]),
    (0, ["runs", "show", "RUN", "-o", "json"]),
    (0, ["runs", "diff", "RUN"]),
    (0, ["runs", "diff", "RUN", "-o", "json"]),
    (0, ["show", "RUN", "last", "-o", "json"]),
    (0, ["show", "RUN", "last", "--raw"]),
    (0, ["logs", "RUN", "-v"]),
    (0, ["logs", "RUN", "-o", "stream-json"]),
    (0, ["sessions", "show", "mine", "--agent", "keeper"]),
    (0, ["usage", "-o", "json"]),
    (0, ["agents", "show", "keeper"]),
    (0, ["validate", "keeper"]),
    (0, ["mcp", "list"]),
    (6, ["mcp", "test"]),
    (6, ["mcp", "test", "-o", "json"]),
    (6, ["mcp", "tools", "broken"]),
    (0, ["mcp", "call", "srv", "env", "--json", '{"name": "TOKEN"}', "--yes"]),
    (0, ["vault", "list"]),
    (0, ["doctor"]),
]


def test_commands(qa_home: QaHome, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Each as a process of its own would play it, which knows of no secret before."""
    for name, value in qa_home.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(qa_home.work)
    qa_home.settings(**settings(qa_home))
    (qa_home.work / "out.txt").unlink(missing_ok=True)  # else the run would not change it
    told, run = [], "none"
    with umask(0):
        for code, words in COMMANDS:
            monkeypatch.setattr(secret_redaction, "_HANDED", secret_redaction.SecretTexts())
            ended = main.run([run if word == "RUN" else word for word in words])
            out, err = capfd.readouterr()
            if "-s" in words:
                run = json.loads(out)["run_id"]
            told.append((words, ended, code, out + err, pieces(out)))
    assert [(words, ended, text) for words, ended, code, text, _ in told if ended != code] == []
    assert [(words, found) for words, *_, text, joined in told if (found := PLANTED.found(text + joined))] == []
    diffs = [text for words, *_, text, _ in told if words[:2] == ["runs", "diff"]]
    assert all("+key: [redacted]" in text and "+more: [redacted]" in text for text in diffs), diffs
    assert in_files(qa_home) == []
    assert open_to_others(qa_home) == []
    with monkeypatch.context() as patch:
        patch.delenv("OUTSIDE")
        patch.setattr(secret_redaction, "_HANDED", secret_redaction.SecretTexts())
        assert main.run(["runs", "diff", run]) == 0
        withheld = capfd.readouterr().out
        assert "{{OUTSIDE}}, whose value is not known in this process" in withheld
        assert PLANTED.found(withheld) == []
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "answered", crash)
        assert main.run(["run", "keeper", "work now", "-v"]) == 1
        assert main.run(["loki", "work now"]) == 1
    crashed = "".join(capfd.readouterr())
    assert crashed.count("crashed: RuntimeError(") == 2
    assert PLANTED.found(crashed) == []
    main.run(["vault", "get", "SERVER_TOKEN"])
    assert capfd.readouterr().out.strip() == KEPT["SERVER_TOKEN"], "which is what that command is for"


def test_diffs_have_no_key_of_a_provider(
    qa_home: QaHome, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As the logs, and what is kept of requests. The person's own file has them, and the tool writes it again."""
    for name, value in qa_home.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(qa_home.work)
    own, other = "pk-in-the-file-4711-abc", "pk-in-the-environment-0815"
    monkeypatch.setenv("SOME_API_KEY", other)
    client = {**settings(qa_home)["clients"][0], "api_key": own}
    qa_home.settings(**{**settings(qa_home), "clients": [client], "enabled_tools": "fs_write"})
    written = qa_home.work / "out.txt"
    written.write_text(f"{own}\n{'x' * 990}{other}\n")  # half of a key that is cut would not be found
    qa_home.models.answer_with(lambda request: "ok" if request.results else Reply(calls=[NONE]))
    try:
        assert main.run(["ask", "empty it", "-o", "json"]) == 0
        run = json.loads(capfd.readouterr().out)["run_id"]
        for words in (["runs", "diff", run], ["runs", "diff", run, "-o", "json"]):
            assert main.run(words) == 0
            text = capfd.readouterr().out
            assert "-[redacted]" in text
            assert "pk-in" not in text
    finally:
        qa_home.models.answer_with(answer)
        written.unlink()


NONE = ("fs_write", {"path": "out.txt", "contents": "none\n"})


def crash(*_: object) -> None:
    raise RuntimeError(f"{KEPT}")


def pieces(lines: str) -> str:
    """The texts that events told in pieces, put together."""
    events = [json.loads(line) for line in lines.splitlines() if line.startswith("{") and '"kind"' in line]
    return "".join(event["data"].get("text", "") for event in events if event["kind"].startswith("llm."))


async def test_a_server(qa_home: QaHome, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """All that it answers over HTTP and websockets, its log, its audit log, its metrics and its spans."""
    for name, value in qa_home.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(qa_home.work)
    audit = qa_home.config.parent / "state" / "audit.jsonl"
    qa_home.settings(**settings(qa_home), api={"audit": {"sink": "file", "file": str(audit)}, "log_level": "debug"})
    traced, listening, told = Traced(), [], {}
    server = HttpServer(ServeOptions(port=0))
    with umask(0):
        async with (
            callboard.Root(config_dir=qa_home.config, wait_for_front_end=True, keep_servers=True) as root,
            trio.open_nursery() as nursery,
        ):
            with traced.of(root, content=True):
                nursery.start_soon(server.serve, root, listening.append)
                await until(lambda: listening)
                (here,) = read_servers(qa_home.environ)
                told |= await over_http(listening[0].url, here.token)
                told |= await over_websocket(listening[0].url, here.token)
                assert open_to_others(qa_home) == []
            nursery.cancel_scope.cancel()
    told["spans"] = traced.everything()
    traced.shut_down()
    told["log"] = "".join(capfd.readouterr())
    assert [(what, found) for what, text in told.items() if (found := PLANTED.found(text))] == []
    assert secret_redaction.PUT in told["answer of an agent"]
    assert in_files(qa_home) == []
    assert open_to_others(qa_home) == []


async def over_http(url: str, token: str) -> dict[str, str]:
    """What is asked, with the whole answer; of streams also the pieces put together."""
    told: dict[str, str] = {}
    headers = {"authorization": f"Bearer {token}"}
    client = httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, verify=False, timeout=PATIENCE)
    async with client:

        async def ask(method: str, path: str, body: Any = None) -> str:
            reply = await client.request(method, path, json=body)
            told[f"{method} {path} {body}"] = f"{dict(reply.headers)} {reply.text}"
            return reply.text

        work = [{"role": "user", "content": "work now"}]
        for stream in (False, True):
            for model in ("agent/keeper", "fake:model"):
                text = await ask("POST", "/v1/chat/completions", {"model": model, "messages": work, "stream": stream})
                told[f"pieces {model} {stream}"] = "".join(re.findall(r'"content":"((?:[^"\\\\]|\\\\.)*)"', text))
        told["answer of an agent"] = told["pieces agent/keeper True"]
        await ask("POST", "/v1/completions", {"agent": "keeper", "prompt": "quote it"})
        run = json.loads(await ask("POST", "/v1/runs", {"target": "keeper", "prompt": "work now"}))["run"]
        told["GET events"] = (await client.get(f"/v1/runs/{run}/events", headers={"accept": "text/event-stream"})).text
        session = json.loads(await ask("POST", "/v1/sessions", {"agent": "keeper"}))
        await ask("POST", f"/v1/sessions/{session['id']}/completions", {"prompt": "work now"})
        paths = [
            "/",
            "/openapi.json",
            "/metrics",
            "/healthz/ready",
            "/v1/info",
            "/v1/info/mcp",
            "/v1/models",
            "/v1/agents",
        ]
        paths += ["/v1/runs", f"/v1/runs/{run}", f"/v1/runs/{run}/events", f"/v1/sessions/{session['id']}", "/v1/usage"]
        for path in (*paths, "/v1/roles", "/v1/rags", "/v1/questions", "/v1/sessions"):
            await ask("GET", path)
    return told


async def over_websocket(url: str, token: str) -> dict[str, str]:
    """The frames, by the request that they answer; what was told besides, as it is and with its pieces put together."""
    told: dict[str, str] = {}
    headers = [(b"authorization", f"Bearer {token}".encode())]
    async with open_websocket_url(f"{url.replace('http', 'ws')}/ws", extra_headers=headers) as websocket:
        client = Client(websocket)

        async def ask(method: str, **params: Any) -> Any:
            answer = await client.call(method, **params)
            told[f"{method} {params}"] = json.dumps(answer)
            return answer.get("result")

        chat = (await ask("_chat/open", agent="keeper"))["chat"]["chat"]
        await ask("_chat/watch", chat=chat)
        run = (await ask("_chat/line", chat=chat, line="work now"))["run"]
        await ask("_run/subscribe", run=run)
        await client.until_told("_run/event")
        for line in (".info agent", ".prompt last", ".mcp", ".diff", "quote it", ".vault list"):
            await ask("_chat/line", chat=chat, line=line)
        for method in ("get", "events", "graph", "calls", "call", "changes"):
            await ask(f"_run/{method}", run=run)
        await ask("_actor/tree", run=run)
        for method in ("_run/list", "_mcp/status", "_usage/read", "_target/list", "_session/list", "_chat/list"):
            await ask(method)
    told["notifications"] = json.dumps(client.told)
    events = [frame["params"]["event"] for frame in client.told if frame.get("method") == "_run/event"]
    told["pieces"] = "".join(each["data"].get("text", "") for each in events if each["kind"].startswith("llm."))
    return told
