"""LLM agents with MCP servers: real ones, started by the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.mcp_entries import _own_cache, mcp_json, scripted, starts  # noqa: F401 - a fixture
from support.messages import has_message, says
from support.tool_families import Person

import callboard
from callboard.protocol.agent import Agent
from callboard.protocol.errors import ConfigError, InvalidFile


def agent(*servers: str, **more: Any) -> Agent:
    return Agent(name="a", instructions="Help.", can_ask_user=False, mcp_servers=servers, **more)


async def play(agent_runner: AgentRunner, who: Agent, *calls: tuple[str, Any], **options: Any) -> list[Any]:
    """What the model reads when it makes these calls, one after another."""
    agent_runner.models.script(*[Reply(calls=[call]) for call in calls], "done")
    outcome = await agent_runner.run("go", target=who, **options)
    assert outcome.error is None, outcome.error
    return [_read(text) for text in agent_runner.models.requests[-1].results]


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


# --- what is offered -----------------------------------------------------------------------------------------


async def test_direct_offers_every_tool_by_itself_and_calls_it(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    results = await play(
        agent_runner, agent("srv", mcp_tools="direct"), ("srv__echo", {"text": "hi"}), ("srv__add", {"a": 1, "b": 2})
    )
    assert results == ["hi", 3]
    offered = agent_runner.models.requests[0].offered
    assert {"srv__echo", "srv__add"} <= set(offered)
    assert not [name for name in offered if name.startswith("mcp_")]
    assert agent_runner.of("agent.started")[0].tools == offered
    agent_runner.check_stream()


async def test_meta_offers_three_tools_and_starts_nothing_before_the_first_call(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted(), other=scripted())
    who = agent("srv", "other", mcp_tools="meta")
    agent_runner.models.script("nothing to do")
    await agent_runner.run("go", target=who)
    assert starts(agent_runner.config_dir, "srv") == 0
    results = await play(
        agent_runner,
        who,
        ("mcp_search_srv", {"query": "echo"}),
        ("mcp_describe_srv", {"tool": "add"}),
        ("mcp_invoke_srv", {"tool": "add", "arguments": {"a": 2, "b": 3}}),
    )
    assert agent_runner.models.requests[-1].offered == [
        f"mcp_{verb}_{server}" for server in ("srv", "other") for verb in ("search", "describe", "invoke")
    ]
    assert results[0][0] == {"name": "echo", "server": "srv", "description": "The tool echo."}
    assert results[1]["properties"]["arguments"]["required"] == ["a", "b"]
    assert results[2] == {"content": [{"type": "text", "text": "5"}], "structuredContent": {"sum": 5}}
    assert (starts(agent_runner.config_dir, "srv"), starts(agent_runner.config_dir, "other")) == (1, 0)


async def test_auto_is_direct_within_the_budget_and_the_largest_server_goes_behind_three(
    agent_runner: AgentRunner,
) -> None:
    mcp_json(agent_runner.config_dir, small=scripted(), large=scripted("--many", "150"))
    settings = json.loads((agent_runner.config_dir / "config.yaml").read_text())
    (agent_runner.config_dir / "config.yaml").write_text(json.dumps({**settings, "mcp_tools_budget": 2000}))
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        agent_runner.root = root
        await play(agent_runner, agent("large", "small"))
    offered = agent_runner.models.requests[0].offered
    assert offered[:3] == ["mcp_search_large", "mcp_describe_large", "mcp_invoke_large"]
    assert "small__echo" in offered


@pytest.mark.parametrize("era", ["--modern", "--legacy"])
async def test_a_tool_that_a_server_gets_in_the_middle_of_a_run_is_offered_at_the_next_turn(
    agent_runner: AgentRunner, era: str
) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted(era))
    instructions = "Use:\n{{__tools__}}"
    who = msgspec.structs.replace(agent("srv", mcp_tools="direct"), instructions=instructions)
    results = await play(agent_runner, who, ("srv__change", {}), ("srv__pid", {}))
    before, after, last = [request.offered for request in agent_runner.models.requests]
    assert results[0] == "changed"
    assert "srv__more_0" not in before
    assert after == last == [*before, "srv__more_0"]
    systems = [request.system or "" for request in agent_runner.models.requests]
    assert ["srv__more_0" in system for system in systems] == [False, True, True]


async def test_a_cached_list_is_offered_without_a_start(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    await play(agent_runner, agent("srv"))
    assert starts(agent_runner.config_dir, "srv") == 1
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        agent_runner.root = root
        await play(agent_runner, agent("srv"))
        assert "srv__echo" in agent_runner.models.requests[-1].offered
        assert starts(agent_runner.config_dir, "srv") == 1
        assert await play(agent_runner, agent("srv"), ("srv__echo", {"text": "now"})) == ["now"]
        assert starts(agent_runner.config_dir, "srv") == 2


async def test_an_agents_and_the_servers_own_lists_leave_tools_out_in_every_mode(agent_runner: AgentRunner) -> None:
    entry = scripted(tools={"deny": ["die", "ech*"]})
    mcp_json(agent_runner.config_dir, srv=entry)
    lists = {"srv": ("a*", "echo", "pid")}
    await play(agent_runner, agent("srv", mcp_tools=lists))
    assert agent_runner.models.requests[-1].offered == ["srv__add", "srv__ask", "srv__pid"]
    settings = json.loads((agent_runner.config_dir / "config.yaml").read_text())
    (agent_runner.config_dir / "config.yaml").write_text(json.dumps({**settings, "mcp_tools": "meta"}))
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        agent_runner.root = root
        results = await play(
            agent_runner,
            agent("srv", mcp_tools=lists),
            ("mcp_search_srv", {"query": ""}),
            ("mcp_invoke_srv", {"tool": "echo", "arguments": {"text": "hi"}}),
            ("mcp_invoke_srv", {"tool": "seen"}),
        )
    assert [found["name"] for found in results[0]] == ["add", "ask", "pid"]
    for refused, name in zip(results[1:], ("echo", "seen"), strict=True):
        assert refused["tool_call_error"].startswith(
            f"MCP tool invocation failed: {name} not found in srv MCP server catalog"
        )


async def test_servers_are_named_by_aliases_by_all_and_by_the_environment(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    mcp_json(agent_runner.config_dir, one=scripted(), two=scripted(), off=scripted(disabled=True))
    settings = json.loads((agent_runner.config_dir / "config.yaml").read_text())
    more = {"mapping_mcp_servers": {"both": "one,two"}, "mcp_tools": "meta"}
    (agent_runner.config_dir / "config.yaml").write_text(json.dumps({**settings, **more}))
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        agent_runner.root = root
        for names in (("both",), ("all",), ("one", "two", "both")):
            await play(agent_runner, agent(*names))
            assert [name for name in agent_runner.models.requests[-1].offered if "search" in name] == [
                "mcp_search_one",
                "mcp_search_two",
            ]
        monkeypatch.setenv("A_MCP_SERVERS", '["two"]')
        agent_runner.plain("instructions: Help.\ncan_ask_user: false\nmcp_servers: [one]", name="a")
        agent_runner.models.script("done")
        await agent_runner.run("go", target="a")
        assert agent_runner.models.requests[-1].offered[0] == "mcp_search_two"
    assert not starts(agent_runner.config_dir, "one")


async def test_a_file_names_its_servers_and_the_prompt_may_list_their_tools(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    agent_runner.plain("mcp_servers: [srv]\nmcp_tools: {srv: [echo]}\ninstructions: 'Tools: {{__tools__}}'", "clerk")
    await agent_runner.run("go", target="clerk")
    assert agent_runner.of("run.warning") == []
    assert "1. srv__echo: The tool echo." in agent_runner.models.requests[0].system


async def test_an_agent_without_servers_reads_no_mcp_json(agent_runner: AgentRunner) -> None:
    (agent_runner.config_dir / "mcp.json").write_text("{ this is no JSON")
    await play(agent_runner, agent())
    assert agent_runner.of("run.warning") == []


# --- what is wrong -------------------------------------------------------------------------------------------


async def test_a_server_that_is_not_configured_is_a_warning_and_its_tools_are_absent(agent_runner: AgentRunner) -> None:
    file = mcp_json(agent_runner.config_dir, github=scripted())
    await play(agent_runner, agent("gitub", "github"))
    (warning,) = agent_runner.of("run.warning")
    assert "MCP server 'gitub' is not configured" in warning.message
    assert {name.partition("__")[0] for name in agent_runner.models.requests[-1].offered} == {"github"}
    agent_runner.plain("mcp_servers: [gitub, elsewhere]", "clerk")
    near, far = callboard.validate("clerk", config_dir=agent_runner.config_dir)
    assert (near.code, near.severity, near.line) == ("unknown_server", "warning", 2)
    assert has_message(near.hint, "protocol.problems.suggestion", name="github")
    assert far.hint == f"add it to {file}."
    assert [p.severity for p in callboard.validate("clerk", config_dir=agent_runner.config_dir, strict=True)] == [
        "error"
    ] * 2
    assert callboard.validate("clerk", config_dir=agent_runner.config_dir, compat="loki") == []


async def test_a_server_that_only_the_environment_names_is_told_as_well(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_runner.plain("mcp_servers: [one]", "clerk")
    monkeypatch.setenv("CLERK_MCP_SERVERS", "one,two")
    await agent_runner.run("go", target="clerk")
    assert ["'one'" in said.message for said in agent_runner.of("run.warning")] == [True, False]
    assert len(agent_runner.of("run.warning")) == 2


async def test_a_childs_missing_server_is_told_once_in_a_run(agent_runner: AgentRunner) -> None:
    agent_runner.plain("mcp_servers: [gone]", "clerk")
    agent_runner.agent(
        """
        start: m
        nodes:
          m: {type: map, over: "{{items}}", as: item, branch: b, output_key: r, collect_into: all, next: e}
          b: {type: agent, agent: clerk, prompt: "{{item}}", state_updates: {r: "{{output}}"}}
          e: {type: end, output: done}
        """
    )
    outcome = await agent_runner.run("go", state={"items": [1, 2, 3]})
    assert outcome.error is None, outcome.error
    told = [said.message for said in agent_runner.of("run.warning") if "not configured" in said.message]
    assert len(told) == 1
    assert "MCP server 'gone' is not configured" in told[0]


async def test_a_broken_file_is_told_whole(agent_runner: AgentRunner) -> None:
    (agent_runner.config_dir / "mcp.json").write_text('{"mcpServers": {')
    with pytest.raises(InvalidFile, match=r"mcp\.json:1"):
        await agent_runner.run("go", target=agent("srv"))


async def test_what_mcp_tools_says_of_a_stranger_is_a_warning(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    agent_runner.plain("mcp_servers: [srv]\nmcp_tools: {svr: [echo]}", "clerk")
    (problem,) = callboard.validate("clerk", config_dir=agent_runner.config_dir)
    assert has_message(str(problem), "runs.file_checks._unknown_servers.3", name="svr")
    assert has_message(str(problem), "protocol.problems.suggestion", name="srv")


async def test_what_mcp_tools_lists_and_the_server_does_not_have_is_warned_of_once(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    lists = {"srv": ("ecko", "srv__add", "p*")}
    results = await play(agent_runner, agent("srv", mcp_tools=lists), ("srv__add", {"a": 1, "b": 1}), ("srv__pid", {}))
    assert results[0] == 2
    assert set(agent_runner.models.requests[0].offered) == {"srv__progress", "srv__add", "srv__pid"}
    (warned,) = agent_runner.of("run.warning")
    assert warned.code == "unknown_tool"
    assert has_message(
        warned.message,
        "work.mcp.tools.view.ServerView._warn_of_unknown_tools",
        pattern="ecko",
        name="srv",
        near="…'echo'…",
    )


async def test_what_is_wrong_with_entries_is_told_to_runs_that_use_them_only(agent_runner: AgentRunner) -> None:
    bad = {"url": "https://x.example/mcp", "command": "x"}
    mcp_json(agent_runner.config_dir, srv={**scripted(), "odd": 1}, bad=bad, other={**scripted(), "odd": 1})
    await play(agent_runner, agent("srv", mcp_tools="meta"))
    (warned,) = agent_runner.of("run.warning")
    assert warned.message.startswith(f"{agent_runner.config_dir}/mcp.json:")
    assert "odd" in warned.message
    agent_runner.events.clear()
    await play(agent_runner, agent())
    assert agent_runner.of("run.warning") == []


async def test_servers_that_are_turned_off_are_an_error(agent_runner: AgentRunner) -> None:
    settings = json.loads((agent_runner.config_dir / "config.yaml").read_text())
    (agent_runner.config_dir / "config.yaml").write_text(json.dumps({**settings, "mcp_server_support": False}))
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        with pytest.raises(ConfigError, match=says("work.mcp.tools.chosen.servers_of")):
            await callboard.run(agent("srv"), "go", root=root)


async def test_a_server_that_can_not_be_started_costs_its_own_tools_only(agent_runner: AgentRunner) -> None:
    mcp_json(
        agent_runner.config_dir,
        bad=scripted("--complain", "no database", "--exit", "3"),
        off=scripted(disabled=True),
        poor=scripted(env={"TOKEN": "${NOT_SET_ANYWHERE}"}),
        good=scripted(),
    )
    results = await play(
        agent_runner,
        agent("bad", "off", "poor", "good"),
        ("good__echo", {"text": "hi"}),
        ("mcp_invoke_bad", {"tool": "x"}),
    )
    assert results[0] == "hi"
    assert "no database" in results[1]["tool_call_error"]
    warned = {
        data.message.split("'")[1]: data.message for data in agent_runner.of("run.warning") if data.code == "mcp_server"
    }
    assert set(warned) == {"bad", "off", "poor"}
    assert "no database" in warned["bad"]
    assert "disabled" in warned["off"]
    assert "NOT_SET_ANYWHERE" in warned["poor"]
    assert all(name.startswith("good__") for name in agent_runner.models.requests[0].offered)


# --- a call --------------------------------------------------------------------------------------------------


async def test_errors_of_tools_servers_and_arguments_are_told_to_the_model(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    results = await play(
        agent_runner,
        agent("srv", mcp_tools="direct"),
        ("srv__fail", {}),
        ("srv__refuse", {}),
        ("srv__add", {"a": "one"}),
        ("srv__nope", {}),
        yes=True,
    )
    told = [result["tool_call_error"] for result in results]
    assert told[0] == "it failed"
    assert "refused on principle" in told[1]
    assert "'one' is not of type 'number'" in told[2]
    assert told[3].startswith("Unknown tool 'srv__nope'")


async def test_a_server_that_dies_is_told_with_its_last_words_and_comes_back(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    results = await play(
        agent_runner,
        agent("srv", mcp_tools="direct"),
        ("srv__die", {"words": "out of luck"}),
        ("srv__echo", {"text": "back"}),
        yes=True,
    )
    assert "out of luck" in results[0]["tool_call_error"]
    assert results[1] == "back"


async def test_a_call_has_its_servers_time(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted(timeout_seconds=3))
    results = await play(
        agent_runner, agent("srv", mcp_tools="direct"), ("srv__slow", {"seconds": 30}), ("srv__echo", {"text": "on"})
    )
    assert results[0]["tool_call_error"] == "Tool call 'srv__slow' was stopped: it did not finish within 3 s"
    assert results[1] == "on"


async def test_progress_is_told_in_events(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    await play(agent_runner, agent("srv", mcp_tools="direct"), ("srv__progress", {"steps": 3}))
    told = [(data.tool, data.progress, data.total, data.message) for data in agent_runner.of("tool.call.progress")]
    assert told == [("srv__progress", n + 1, 3, f"step {n}") for n in range(3)]


async def test_the_calls_of_a_turn_go_to_the_server_at_once(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    agent_runner.models.script(Reply(calls=[("srv__slow", {"seconds": 0.3}), ("srv__echo", {"text": "quick"})]), "ok")
    await agent_runner.run("go", target=agent("srv", mcp_tools="direct"))
    assert agent_runner.models.requests[-1].results == ["slept", "quick"]
    assert [data.tool for data in agent_runner.of("tool.call.finished")] == ["srv__echo", "srv__slow"]


async def test_mcp__search_is_understood_though_it_is_not_offered(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    (result,) = await play(agent_runner, agent("srv", mcp_tools="meta"), ("mcp__search_srv", {"query": "echo"}))
    assert result[0]["name"] == "echo"
    assert "mcp__search_srv" not in agent_runner.models.requests[0].offered


# --- people --------------------------------------------------------------------------------------------------


ASK = ("srv__ask", {"question": "Colour?"})


class Answering(Person):
    """Answers every question with the next of its answers."""

    def __init__(self, agent_runner: AgentRunner, *answers: str) -> None:
        super().__init__()
        self._stage = agent_runner
        self._answers = list(answers)

    def asked(self, question: Any) -> None:
        super().asked(question)
        answer = self._answers.pop(0)
        trio.lowlevel.spawn_system_task(self._later, question.id, answer)

    async def _later(self, id: str, answer: str) -> None:
        self._stage.root.questions.answer(id, answer, "terminal")


@pytest.mark.parametrize("era", ["--modern", "--legacy"])
async def test_a_question_of_the_server_reaches_a_person_and_its_time_does_not_count(
    agent_runner: AgentRunner, era: str, mock_clock: trio.testing.MockClock
) -> None:
    mock_clock.rate = 1.0
    mcp_json(agent_runner.config_dir, srv=scripted(era, timeout_seconds=60))

    class Slow(Answering):
        async def _later(self, id: str, answer: str) -> None:
            mock_clock.jump(70)
            await super()._later(id, answer)

    person = Slow(agent_runner, "blue")
    with agent_runner.root.questions.attach(person):
        (result,) = await play(agent_runner, agent("srv", mcp_tools="direct"), ASK)
    assert result == {"action": "accept", "content": {"answer": "blue"}}
    assert person.shown[0].text == "MCP server 'srv' asks: Colour?\nanswer"
    assert person.shown[0].actor.startswith("/run-")
    assert "/a/srv__ask" in person.shown[0].actor


async def test_without_a_person_the_server_is_told_cancel(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    (result,) = await play(agent_runner, agent("srv", mcp_tools="direct"), ASK)
    assert result == {"action": "cancel"}


@pytest.mark.parametrize("mode", ["direct", "meta"])
async def test_a_tool_that_says_it_destroys_asks_first_however_it_is_called(
    agent_runner: AgentRunner, mode: str
) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    call = ("srv__die", {"status": 1}) if mode == "direct" else ("mcp_invoke_srv", {"tool": "die", "arguments": {}})
    (result,) = await play(agent_runner, agent("srv", mcp_tools=mode), call)
    assert has_message(result["tool_call_error"], "work.tools.permissions.Permissions._ask", name="srv__die")
    person = Answering(agent_runner, "no")
    with agent_runner.root.questions.attach(person):
        await play(agent_runner, agent("srv", mcp_tools=mode), call)
    assert person.shown[0].permission == "srv__die"
    (result,) = await play(agent_runner, agent("srv", mcp_tools=mode), call, allow=["srv__die"])
    assert "I am dying" in str(result)


@pytest.mark.parametrize(
    ("trust", "call", "goes"),
    [
        ("full", ("srv__die", {}), True),
        ("hints", ("srv__pid", {}), True),
        ("none", ("srv__pid", {}), False),
        ("none", ("srv__echo", {"text": "x"}), False),
    ],
)
async def test_trust_decides_where_nobody_has_said_anything(
    agent_runner: AgentRunner, trust: str, call: Any, goes: bool
) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted(trust=trust))
    (result,) = await play(agent_runner, agent("srv", mcp_tools="direct"), call)
    assert ("was not run" not in str(result)) == goes


@pytest.mark.parametrize(
    ("rules", "refused"),
    [({"srv__*": "deny"}, True), ({"mcp_invoke_srv": "deny"}, True), ({"other__*": "deny"}, False)],
)
async def test_patterns_speak_of_tools_by_their_direct_name(
    agent_runner: AgentRunner, rules: Any, refused: bool
) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    call = ("mcp_invoke_srv", {"tool": "echo", "arguments": {"text": "hi"}})
    (result,) = await play(agent_runner, agent("srv", mcp_tools="meta", permissions=rules), call)
    assert (has_message(str(result), "work.tools.permissions.Permissions.admit")) == refused


# --- sampling ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["--modern", "--legacy"])
@pytest.mark.parametrize("policy", ["off", "ask", "on"])
@pytest.mark.sample(3)
async def test_a_server_asks_our_model_only_if_its_entry_lets_it(
    agent_runner: AgentRunner, era: str, policy: str
) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted(era, sampling=policy))

    def answer(request: Request) -> Reply | str:
        if request.prompt == "rhyme":
            return "in time"
        return Reply(calls=[("srv__sample", {"text": "rhyme"})]) if not request.results else "done"

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run("go", target=agent("srv", mcp_tools="direct"))
    assert outcome.output == "done"
    result = agent_runner.models.requests[-1].results[0]
    asked = [request for request in agent_runner.models.requests if request.prompt == "rhyme"]
    assert bool(asked) == (policy == "on")
    assert ("in time" in result) == (policy == "on")
    if policy == "ask":
        assert "srv__sampling" in result
        outcome = await agent_runner.run("go", target=agent("srv", mcp_tools="direct"), allow=["srv__sampling"])
        assert "in time" in agent_runner.models.requests[-1].results[0]
        assert outcome.turns == 3


# --- sharing and ends ----------------------------------------------------------------------------------------


async def test_agents_share_a_server_unless_it_says_otherwise(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, pool=scripted(), own=scripted(share="per-agent"))
    agent_runner.plain("mcp_servers: [pool, own]\nmcp_tools: direct", "worker")
    agent_runner.models.answer_with(
        lambda request: (
            Reply(calls=[("pool__pid", {}), ("own__pid", {})]) if not request.results else " ".join(request.results)
        )
    )
    outputs: list[str] = []

    async def one() -> None:
        outputs.append((await agent_runner.run("go", target="worker")).output)

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(one)
    assert len({output.split()[0] for output in outputs}) == 1
    assert len({output.split()[1] for output in outputs}) == 4


async def test_a_run_that_is_cancelled_in_a_call_gives_everything_back(agent_runner: AgentRunner) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    agent_runner.models.script(Reply(calls=[("srv__slow", {"seconds": 60})]))
    with trio.CancelScope() as scope:

        def on_event(event: Any) -> None:
            if event.kind == "tool.call.started":
                scope.cancel()

        await agent_runner.run("go", target=agent("srv", mcp_tools="direct"), on_event=on_event)
    assert [status.leases for status in agent_runner.root.mcp.status()] == [0]
    assert await play(agent_runner, agent("srv", mcp_tools="direct"), ("srv__echo", {"text": "on"})) == ["on"]


def test_the_suite_has_its_server() -> None:
    from support.mcp_entries import SCRIPTED

    assert Path(SCRIPTED).is_file()
