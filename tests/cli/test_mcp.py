"""`callboard mcp`: servers listed, met and called by hand, with what goes wrong told where it belongs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
from support.messages import fragment, has_message
from support.starter import CALLBOARD
from support.waiting import PATIENCE

from callboard.actors.work.mcp.files import load_mcp
from callboard.cli.actions import mcp_status
from callboard.cli.actions.mcp import _signature, address_text
from callboard.cli.render.text import fitted

Callboard = Callable[..., "tuple[int, str, str]"]
Home = Callable[..., Path]

SCRIPTED = Path(__file__).parents[1] / "actors" / "work" / "mcp" / "servers" / "scripted.py"


def entry(*flags: str, **keys: object) -> dict[str, object]:
    """An entry of `mcp.json`: the scripted server."""
    return {"command": sys.executable, "args": ["-S", str(SCRIPTED), *flags], **keys}


# --- list -------------------------------------------------------------------------------------------------


def test_servers_are_listed_without_being_started(callboard: Callboard, mcp_json: Home) -> None:
    file = mcp_json(
        s={"command": "/nowhere/s", "args": ["--token", "hush"], "share": "per-agent"},
        sh={"command": "sh"},
        web={"url": "https://example.org/mcp"},
        off={"command": "x", "disabled": True},
    )
    code, out, err = callboard("mcp")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        str(file),
        "  s    not found        per-agent  /nowhere/s --token ***",
        "  sh   never connected  pool       sh",
        "  web  never connected  pool       https://example.org/mcp",
        "  off  disabled         pool       x",
    ]


def test_a_broken_entry_is_told_and_hides_no_other(callboard: Callboard, mcp_json: Home) -> None:
    file = mcp_json(s={"command": "s"}, bad={"args": []})
    code, out, err = callboard("mcp", "list")
    assert code == 2
    assert err.startswith(f"{file}:1:")
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["s", "bad"]
    assert "can't be used" in out


def test_a_variable_that_is_missing_is_told_and_none_of_it_is_shown(
    callboard: Callboard, mcp_json: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    mcp_json(web={"url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${WEB_TOKEN}"}})
    code, out, err = callboard("mcp")
    assert code == 0
    assert "lacks a value" in out
    assert "export WEB_TOKEN=..." in err
    monkeypatch.setenv("WEB_TOKEN", "hush")
    assert "hush" not in "".join(callboard("mcp", "list", "-o", "json")[1:])


def test_without_a_file_the_way_to_one_is_told(callboard: Callboard, mcp_json: Home, tmp_path: Path) -> None:
    (tmp_path / "config").rmdir()
    code, out, err = callboard("mcp")
    assert (code, err) == (0, "")
    assert out == f"no MCP servers in {tmp_path}/config/mcp.json; to write some: callboard mcp init\n"


def test_what_was_remembered_is_listed(callboard: Callboard, mcp_json: Home) -> None:
    mcp_json(s=entry(tools={"deny": ["die"]}))
    assert callboard("mcp", "tools", "s", "--cached")[0] == 2
    assert callboard("mcp", "tools", "s")[0] == 0
    (row,) = json.loads(callboard("mcp", "list", "-o", "json")[1])["servers"]
    count = len(json.loads(callboard("mcp", "tools", "s", "--cached", "-o", "json")[1])["tools"])
    assert (row["tools"], row["server"], row["protocol"]) == (
        count,
        {"name": "scripted", "version": "1.0"},
        "2026-07-28",
    )
    assert f"  s  {count} tools  pool  " in callboard("mcp")[1]


@pytest.mark.parametrize(
    ("server", "shown"),
    [
        ({"command": "x", "args": ["--api-key=abc", "-v", "a b"]}, "x --api-key=*** -v 'a b'"),
        ({"command": "x", "args": ["--token", "abc", "run"]}, "x --token *** run"),
        ({"command": "x", "args": ["--token", "${TOKEN}"]}, "x --token ${TOKEN}"),
        ({"command": "x", "args": ["--auth", "--verbose"]}, "x --auth --verbose"),
        ({"command": "docker", "args": ["-e", "GITHUB_TOKEN=abc"]}, "docker -e GITHUB_TOKEN=***"),
        ({"command": "x", "args": ["ghp_abcdef", "sk-abcdef", "skip"]}, "x *** *** skip"),
        (
            {"command": "mcp-remote", "args": ["--header", "Authorization: Bearer abc", "X-Api-Key:abc"]},
            "mcp-remote --header 'Authorization: ***' 'X-Api-Key: ***'",
        ),
        ({"command": "x", "args": ["Authorization: Bearer ${A}"]}, "x 'Authorization: Bearer ${A}'"),
        ({"command": "x", "args": ["postgres://me:abc@db/x"]}, "x 'postgres://***@db/x'"),
        ({"url": "https://me:abc@h/mcp?key=abc&n=1#abc"}, "https://***@h/mcp?key=***&n=***"),
    ],
)
def test_what_may_be_secret_in_a_command_or_an_address_is_hidden(
    mcp_json: Home, server: dict[str, object], shown: str
) -> None:
    assert address_text(load_mcp(mcp_json(s=server).parent).servers["s"]) == shown


# --- test -------------------------------------------------------------------------------------------------


def test_a_server_that_works_tells_what_it_offers(callboard: Callboard, mcp_json: Home) -> None:
    mcp_json(s=entry("--legacy"))
    code, out, err = callboard("mcp", "test", "s")
    assert (code, err) == (0, "")
    head, *lines = out.splitlines()
    assert head.startswith("s works, ready in ")
    assert [line.split(maxsplit=1) for line in lines if "tools" not in line and "reached" not in line] == [
        ["server", "scripted 1.0"],
        ["protocol", "2025-11-25"],
        ["resources", "1: memo://one"],
        ["prompts", "1: greet"],
        ["says", "Be kind."],
    ]


def test_all_are_met_side_by_side_and_the_first_failure_is_the_exit_code(callboard: Callboard, mcp_json: Home) -> None:
    mcp_json(
        good=entry(),
        dead=entry("--complain", "no such database", "--exit", "3"),
        poor={"url": "https://example.org/${NO_SUCH_THING}"},
    )
    code, out, _err = callboard("mcp", "test", "-o", "json")
    good, dead, poor = json.loads(out)["servers"]
    assert code == 6
    assert (good["error"], good["protocol"]) == (None, "2026-07-28")
    assert "echo" in good["tools"]
    assert dead["error"]["code"] == "mcp_lost"
    assert "no such database" in dead["error"]["message"]
    assert poor["error"]["code"] == "config"
    code, out, _err = callboard("mcp", "test", "poor")
    assert code == 3
    assert out.splitlines()[0].startswith("poor FAILED in ")
    assert "export NO_SUCH_THING=..." in out


@pytest.mark.parametrize(
    "command",
    [("test", "tim"), ("tools", "tim"), ("tools", "tim", "--cached"), ("call", "tim", "now")],
    ids=" ".join,
)
def test_a_server_that_is_not_there_is_wrong_usage(
    callboard: Callboard, mcp_json: Home, command: tuple[str, ...]
) -> None:
    mcp_json(time=entry())
    code, out, err = callboard("mcp", *command)
    assert (code, out) == (2, "")
    assert has_message(err, "protocol.mcp.config.McpConfig.get.4", name="tim")
    assert has_message(err, "cli.render.markdown.theme._known", near="'time'")


def test_an_entry_that_cannot_be_used_has_failed_where_all_are_tested(callboard: Callboard, mcp_json: Home) -> None:
    mcp_json(s=entry(), bad={"args": []})
    code, out, err = callboard("mcp", "test")
    assert code == 2
    assert out.startswith("s works, ")
    assert "'bad' has neither" in err
    assert callboard("mcp", "test", "s")[::2] == (0, "")


def test_nothing_to_test_says_how_to_begin(callboard: Callboard, mcp_json: Home) -> None:
    code, out, err = callboard("mcp", "test")
    assert (code, out) == (2, "")
    assert "callboard mcp init" in err


def test_a_file_that_cannot_be_read_is_not_told_to_be_written(callboard: Callboard, mcp_json: Home) -> None:
    file = mcp_json()
    file.write_text('{"mcpServers": {')
    for command in (("mcp", "list"), ("mcp", "test"), ("ask", "hi", "--tool", "mcp:time")):
        code, out, err = callboard(*command)
        assert code == 2
        assert err.count("is not closed") == 1
        assert f"{file} can't be read" in out + err
        assert "init" not in out + err
    (problem,) = json.loads(callboard("mcp", "list", "-o", "json")[1])["problems"]
    assert has_message(problem["message"], "protocol.mcp.jsonc._Parser.closes")
    assert has_message(
        json.loads(callboard("mcp", "test", "-o", "json")[1])["error"]["message"], "protocol.mcp.jsonc._Parser.closes"
    )


def test_where_all_are_disabled_that_is_what_is_told(callboard: Callboard, mcp_json: Home) -> None:
    mcp_json(s=entry(disabled=True), t=entry(disabled=True))
    code, _out, err = callboard("mcp", "test")
    assert code == 2
    assert has_message(err, "cli.actions.mcp._nothing_to_probe.4", all_of="…all 2 MCP servers")
    assert has_message(err, "cli.actions.mcp._nothing_to_probe.4", verb="are")


def test_where_no_entry_can_be_used_each_is_told(callboard: Callboard, mcp_json: Home) -> None:
    mcp_json(bad={"args": []})
    code, _out, err = callboard("mcp", "test")
    assert code == 2
    assert err.count("'bad' has neither") == 1
    assert "mcp.json has no valid entry" in err


async def test_a_result_is_written_before_the_next_is_there(mcp_json: Home, tmp_path: Path) -> None:
    go = tmp_path / "go"
    mcp_json(
        slow={"command": "sh", "args": ["-c", f"while [ ! -e {go} ]; do sleep 0.01; done; exit 4"]},
        quick={"command": "sh", "args": ["-c", "exit 3"]},
    )
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            command = [*CALLBOARD, "mcp", "test"]
            process = await nursery.start(partial(trio.run_process, command, stdout=subprocess.PIPE, check=False))
            seen = b""
            while b"quick FAILED" not in seen:
                seen += await process.stdout.receive_some()
            assert b"slow FAILED" not in seen
            go.touch()
            async for more in process.stdout:
                seen += more
    assert b"slow FAILED" in seen
    assert process.returncode == 6


@pytest.mark.parametrize("command", [("test", "s"), ("call", "s", "echo", "--json", '{"text": "x"}')], ids=str)
def test_that_mcp_is_turned_off_is_said_by_what_works_all_the_same(
    callboard: Callboard, mcp_json: Home, tmp_path: Path, command: tuple[str, ...]
) -> None:
    mcp_json(s=entry())
    (tmp_path / "config" / "config.yaml").write_text("mcp_server_support: false\n")
    code, out, err = callboard("mcp", *command)
    assert code == 0
    assert out
    assert err.startswith("callboard: MCP is turned off for all runs: `mcp_server_support` in ")
    assert err.count("\n") == 1


MUTE = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    told = {
        "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}, "resources": {}}},
        "tools/list": {"tools": []},
    }.get(asked["method"])
    if told is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
"""


def test_a_server_that_never_tells_its_resources_holds_nobody_up(callboard: Callboard, mcp_json: Home) -> None:
    mcp_json(s={"command": sys.executable, "args": ["-S", "-c", MUTE], "timeout_seconds": 3})
    code, out, _err = callboard("mcp", "test")
    assert code == 6
    assert "s FAILED in " in out
    assert has_message(out, "cli.actions.mcp._in_time", timeout_seconds=3)


# --- tools ------------------------------------------------------------------------------------------------


def test_the_tools_of_a_server_are_listed_with_what_asks(callboard: Callboard, mcp_json: Home, tmp_path: Path) -> None:
    mcp_json(s=entry(tools={"allow": ["echo", "die", "fail"]}))
    (tmp_path / "config" / "config.yaml").write_text("permissions: {s__fail: deny}\n")
    code, out, err = callboard("mcp", "tools", "s")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "s (scripted 1.0): 3 tools",
        "  echo(text)              The tool echo.",
        "  die()       asks first  The tool die.",
        "  fail()      denied      The tool fail.",
    ]
    assert callboard("mcp", "tools", "s", "--cached")[1] == out
    first = json.loads(callboard("mcp", "tools", "s", "-o", "json")[1])["tools"][0]
    assert (first["offered_as"], first["read_only"], first["permission"]) == ("s__echo", True, "allow")
    assert first["parameters"]["required"] == ["text"]


def test_what_may_be_left_out_has_a_question_mark_and_a_terminal_has_an_edge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = {"properties": {"a": {}, "b": {}}, "required": ["b"]}
    assert _signature("t", schema) == "t(a?, b)"
    assert _signature("t", {"properties": []}) == "t()"
    assert fitted(["x" * 100]) == "x" * 100 + "\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    assert fitted(["x" * 100]) == "x" * 19 + "…\n"


# --- call -------------------------------------------------------------------------------------------------


def test_the_result_is_on_stdout_and_nothing_on_stderr(callboard: Callboard, mcp_json: Home) -> None:
    mcp_json(s=entry())
    assert callboard("mcp", "call", "s", "echo", "--json", '{"text": "hello"}') == (0, "hello\n", "")
    assert callboard("mcp", "call", "s", "s__echo", "--json", '{"text": "by its other name"}')[0] == 0


def test_verbose_tells_how_it_comes_about(callboard: Callboard, mcp_json: Home) -> None:
    mcp_json(s=entry())
    err = callboard("mcp", "call", "s", "progress", "--json", '{"steps": 2}', "-v")[2]
    assert has_message(err, "cli.render.narration.Narrator._mcp_started", server="…MCP server s")
    assert "    s__progress: 50% " in err
    assert "s__progress steps=2 done in " in err


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (("fail",), 1, "callboard: "),
        (("ech",), 2, "MCP server 's' has no tool 'ech'; did you mean 'echo'?"),
        (("echo",), 2, "the arguments don't fit: $: 'text' is a required property"),
        (("echo", "--json", "[]"), 2, fragment("cli.flag_values.arguments.2")),
        (("die",), 1, "needs approval, and no terminal or client is attached"),
        (("die", "--allow", "s__die"), 1, "MCP server 's' exited with status 3"),
    ],
    ids=str,
)
@pytest.mark.sample(3)
def test_what_goes_wrong_with_a_call_is_told_on_stderr(
    callboard: Callboard, mcp_json: Home, command: tuple[str, ...], code: int, said: str
) -> None:
    mcp_json(s=entry())
    ended, out, err = callboard("mcp", "call", "s", *command, "--no-input")
    assert (ended, out) == (code, "")
    assert said in err


def test_a_call_to_a_server_that_cannot_be_reached_ends_with_6(callboard: Callboard, mcp_json: Home) -> None:
    mcp_json(s=entry("--complain", "no licence", "--exit", "1"))
    code, out, err = callboard("mcp", "call", "s", "echo", "--json", '{"text": "x"}')
    assert (code, out) == (6, "")
    assert "no licence" in err


def test_json_has_the_result_or_the_error(callboard: Callboard, mcp_json: Home) -> None:
    mcp_json(s=entry())
    code, out, _err = callboard("mcp", "call", "s", "echo", "--json", '{"text": "hello"}', "-o", "json")
    assert (code, json.loads(out)) == (0, {"schema_version": 1, "result": "hello", "error": None})
    code, out, _err = callboard("mcp", "call", "s", "fail", "-o", "json")
    told = json.loads(out)
    assert (code, told["result"], told["error"]["code"]) == (1, None, "tool_failed")


@pytest.mark.parametrize("flags", [(), ("-v",)], ids=str)
def test_a_question_that_nobody_answers_is_told(callboard: Callboard, mcp_json: Home, flags: tuple[str, ...]) -> None:
    mcp_json(s=entry())
    command = ("mcp", "call", "s", "ask", "--json", '{"question": "Which one?\\nOr two?"}', "--no-input")
    code, out, err = callboard(*command, *flags)
    assert (code, json.loads(out)["action"]) == (0, "cancel")
    assert err.count(fragment("work.mcp.tools.elicitation.ask.2", server="s", asked="Which one?\n…")) == 1


INSISTS = """
import json, sys
def say(**told):
    print(json.dumps({"jsonrpc": "2.0", **told}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    method = asked.get("method")
    if method == "initialize":
        about = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "x", "version": "1"}}
        say(id=asked["id"], result={**about, "capabilities": {"tools": {}}})
    elif method == "tools/list":
        say(id=asked["id"], result={"tools": [{"name": "go", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        call = asked["id"]
        say(id="q", method="elicitation/create", params={"message": "Sure?", "requestedSchema": {"type": "object"}})
    elif method is None:
        say(id=call, result={"content": [{"type": "text", "text": "not agreed"}], "isError": True})
    elif "id" in asked:
        say(id=asked["id"], error={"code": -32601, "message": "no"})
"""


def test_a_tool_that_fails_for_want_of_a_person_ends_with_5(callboard: Callboard, mcp_json: Home) -> None:
    mcp_json(s={"command": sys.executable, "args": ["-S", "-c", INSISTS]})
    code, out, err = callboard("mcp", "call", "s", "go", "--no-input")
    assert (code, out) == (5, "")
    assert err.splitlines() == [
        fragment("work.mcp.tools.elicitation.ask.2", server="…callboard: MCP server 's", asked="Sure?…"),
        "callboard: not agreed",
    ]


# --- reload ----------------------------------------------------------------------------------------------


def test_a_reload_tells_what_it_waits_for_and_who_has_ended(
    callboard: Callboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask_all(_directory: Path, request: dict[str, str]) -> list[dict[str, object]]:
        if request["ask"] == "status":
            servers = [{"name": "s", "pending": 2}, {"name": "t", "pending": 1}]
            return [{"pid": 0, "servers": servers}, {"pid": 1, "ended": True}]
        return [{"pid": 0, "reloaded": ["s"]}, {"pid": 1, "ended": True}]

    monkeypatch.setattr(mcp_status, "ask_all", ask_all)
    monkeypatch.setattr(mcp_status, "_command", lambda _pid: " (x)")
    code, out, err = callboard("mcp", "reload", "s")
    assert (code, out) == (0, "process 0: restarted: s\n")
    assert err.splitlines() == [
        "callboard: waiting for 2 calls under way of process 0 (x)",
        "callboard: process 1 ended, and its servers with it",
    ]
    processes = json.loads(callboard("mcp", "reload", "-o", "json")[1])["processes"]
    assert processes == [{"pid": 0, "reloaded": ["s"]}, {"pid": 1, "ended": True}]
