"""Agents of a config.yaml at work: tools of their own, todo lists, dynamic instructions, limits, events."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply
from support.messages import fragment, has_message, says

import callboard
from callboard.actors.work.tools.tool import Tool
from callboard.protocol.chat import Tool as ToolSpec
from callboard.protocol.errors import ConfigError, InvalidFile

USER = ["user__ask", "user__confirm", "user__input", "user__checkbox"]
TODO = ["todo__init", "todo__add", "todo__done", "todo__list", "todo__clear"]


async def test_an_agent_is_offered_its_own_tools_the_global_ones_it_lists_and_the_families(
    agent_runner: AgentRunner,
) -> None:
    home = agent_runner.plain("global_tools: [fs_cat.sh, get_current_time]\nauto_continue: true", name="clerk")
    (home / "tools.py").write_text('def stamp(text: str):\n    """Stamps a text."""\n    return text.upper()\n')
    await agent_runner.run("hi", target="clerk")
    assert agent_runner.models.requests[0].offered == ["stamp", "fs_cat", "get_current_time", *TODO, *USER]
    assert agent_runner.of("agent.started")[0].tools == ["stamp", "fs_cat", "get_current_time", *TODO, *USER]


async def test_a_tool_of_the_agents_file_is_run_as_a_process(agent_runner: AgentRunner) -> None:
    home = agent_runner.plain("variables: [{name: mark, default: '!'}]", name="clerk")
    (home / "tools.py").write_text(
        'import os\ndef stamp(text: str):\n    """Stamps a text."""\n'
        "    return text.upper() + os.environ['LLM_AGENT_VAR_MARK'] + os.environ['LLM_AGENT_NAME']\n"
    )
    agent_runner.models.script(Reply(calls=[("stamp", {"text": "paid"})]), "done")
    outcome = await agent_runner.run("stamp it", target="clerk", variables={"mark": "?"})
    assert outcome.output == "done"
    assert agent_runner.models.requests[1].results == ['{"output":"PAID?clerk"}']
    agent_runner.check_stream()


async def test_the_users_files_stay_as_they_are(agent_runner: AgentRunner) -> None:
    home = agent_runner.plain("", name="clerk")
    text = (
        '#!/usr/bin/env bash\n# @cmd Says hi.\n# @option --to! whom\nhi() { printf "hi $argc_to" >> "$LLM_OUTPUT"; }\n'
    )
    (home / "tools.sh").write_text(text)
    agent_runner.models.script(Reply(calls=[("hi", {"to": "you"})]), "done")
    await agent_runner.run("greet", target="clerk")
    assert agent_runner.models.requests[1].results == ['{"output":"hi you"}']
    assert (home / "tools.sh").read_text() == text
    assert sorted(path.name for path in home.iterdir()) == ["config.yaml", "tools.sh"]


async def test_an_error_in_the_tools_file_names_the_line_before_anything_is_asked(agent_runner: AgentRunner) -> None:
    home = agent_runner.plain("", name="clerk")
    (home / "tools.py").write_text('def stamp(*texts: str):\n    """Stamps."""\n')
    with pytest.raises(InvalidFile, match=r"tools\.py:1"):
        await agent_runner.run("hi", target="clerk")
    assert agent_runner.models.requests == []


async def test_two_tools_files_are_one_too_many(agent_runner: AgentRunner) -> None:
    home = agent_runner.plain("", name="clerk")
    (home / "tools.py").write_text("")
    (home / "tools.sh").write_text("")
    with pytest.raises(InvalidFile, match=says("work.tools.registry.agent_file")):
        await agent_runner.run("hi", target="clerk")


async def test_a_global_tool_that_is_not_there_is_a_warning_with_a_hint(agent_runner: AgentRunner) -> None:
    agent_runner.plain("global_tools: [fs_cta, fs_ls]", name="clerk")
    await agent_runner.run("hi", target="clerk")
    (warning,) = [data for data in agent_runner.of("run.warning") if data.code == "unknown_tool"]
    assert "'fs_cta'" in warning.message
    assert has_message(warning.message, "protocol.problems.suggestion", name="fs_cat")
    assert "fs_ls" in agent_runner.models.requests[0].offered


async def test_dynamic_instructions_come_from_the_tools_file(agent_runner: AgentRunner) -> None:
    home = agent_runner.plain("dynamic_instructions: true\ninstructions: never used", name="clerk")
    (home / "tools.py").write_text(
        'def _instructions():\n    """Makes them."""\n    return "You are in {{__cwd__}}."\n'
    )
    await agent_runner.run("hi", target="clerk")
    assert agent_runner.models.requests[0].system.startswith(f"You are in {Path.cwd()}.\n\n## Asking the user")


async def test_dynamic_instructions_that_need_a_missing_program_name_it(agent_runner: AgentRunner) -> None:
    home = agent_runner.plain("dynamic_instructions: true", name="clerk")
    (home / "tools.sh").write_text("# @meta require-tools no-such-program\n_instructions() { echo hi; }\n")
    outcome = await agent_runner.run("hi", target="clerk")
    assert has_message(
        outcome.error.message,
        "work.tools.files.call._Call.check.2",
        _tool="_instructions",
        status="…'no-such-program'…",
    )
    (home / "tools.sh").write_text('_instructions() { no-such-program >> "$LLM_OUTPUT"; }\n')
    outcome = await agent_runner.run("hi", target="clerk")
    assert "no-such-program: command not found" in outcome.error.message


async def test_dynamic_instructions_may_ask_the_user(agent_runner: AgentRunner) -> None:
    home = agent_runner.plain("dynamic_instructions: true\ncan_ask_user: false", name="clerk")
    (home / "tools.py").write_text('def _instructions():\n    """Makes them."""\n    return "Use " + input("Which?")\n')
    await agent_runner.run("hi", target="clerk", answers=["jq"])
    assert agent_runner.models.requests[0].system == "Use jq"


async def test_case_80_open_todos_are_gone_on_with_until_the_limit(agent_runner: AgentRunner) -> None:
    agent_runner.plain("auto_continue: true\nmax_auto_continues: 2", name="clerk")
    agent_runner.models.script(
        Reply(calls=[("todo__init", {"goal": "g"}), ("todo__add", {"task": "a"}), ("todo__add", {"task": "b"})]),
        "one",
        "two",
        "three",
    )
    outcome = await agent_runner.run("go", target="clerk")
    assert outcome.status == "done"
    assert outcome.output == "one\ntwo\nthree"
    assert agent_runner.models.unused == 0
    assert [(data.count, data.most, data.open) for data in agent_runner.of("agent.continued")] == [(1, 2, 2), (2, 2, 2)]
    assert agent_runner.of("agent.finished")[0].stop == "todo_limit"
    prompt = agent_runner.models.requests[2].prompt
    assert prompt.endswith("Goal: g\nProgress: 0/2 completed\n  ○ 1. a\n  ○ 2. b")


async def test_case_80_nothing_is_gone_on_with_when_all_is_done(agent_runner: AgentRunner) -> None:
    agent_runner.plain("auto_continue: true", name="clerk")
    agent_runner.models.script(Reply(calls=[("todo__add", {"task": "a"}), ("todo__done", {"id": 1})]), "finished")
    outcome = await agent_runner.run("go", target="clerk")
    assert outcome.output == "finished"
    assert agent_runner.kinds("agent.continued") == []
    assert agent_runner.of("agent.finished")[0].stop == "done"


async def test_the_same_answer_again_with_the_same_list_ends_it(agent_runner: AgentRunner) -> None:
    agent_runner.plain("auto_continue: true", name="clerk")
    agent_runner.models.script(Reply(calls=[("todo__add", {"task": "a"})]), "I can't", "I can't", "never said")
    outcome = await agent_runner.run("go", target="clerk")
    assert outcome.output == "I can't\nI can't"
    assert agent_runner.of("agent.finished")[0].stop == "todo_stuck"


async def test_a_call_left_to_the_caller_is_no_standing_still(agent_runner: AgentRunner) -> None:
    async def run(*_: Any) -> Any:
        raise AssertionError("played here")

    theirs = Tool(spec=ToolSpec(name="theirs"), run=run, origin="function", elsewhere=True)
    agent_runner.plain("auto_continue: true", name="clerk")
    agent_runner.models.script(
        Reply(calls=[("todo__add", {"task": "a"})]), "wait", Reply("wait", calls=[("theirs", {})]), "never said"
    )
    await agent_runner.run("go", target="clerk", tools=[theirs])
    assert agent_runner.of("agent.finished")[0].stop == "handed_out"


async def test_the_agents_own_words_for_going_on(agent_runner: AgentRunner) -> None:
    agent_runner.plain('auto_continue: true\nmax_auto_continues: 1\ncontinuation_prompt: "Weiter!"', name="clerk")
    agent_runner.models.script(Reply(calls=[("todo__add", {"task": "a"})]), "one", "two")
    await agent_runner.run("go", target="clerk")
    assert agent_runner.models.requests[2].prompt.startswith("Weiter!\n\n")


async def test_case_79_todo_tools_refuse_without_auto_continue(agent_runner: AgentRunner) -> None:
    agent_runner.plain("", name="clerk")
    agent_runner.models.script(Reply(calls=[("todo__add", {"task": "a"})]), "ok")
    await agent_runner.run("go", target="clerk")
    (told,) = agent_runner.models.requests[1].results
    assert json.loads(told)["tool_call_error"].startswith(fragment("work.agent.todo"))


async def test_user_questions_of_the_root_are_answered_like_any_other(agent_runner: AgentRunner) -> None:
    agent_runner.plain("", name="clerk")
    agent_runner.models.script(Reply(calls=[("user__ask", {"question": "Which?", "options": ["a", "b"]})]), "done")
    await agent_runner.run("go", target="clerk", answers=["b"])
    assert agent_runner.models.requests[1].results == ['{"answer":"b"}']


async def test_where_nobody_is_a_question_falls_back_to_the_models_judgment(agent_runner: AgentRunner) -> None:
    agent_runner.plain("", name="clerk")
    agent_runner.models.script(Reply(calls=[("user__confirm", {"question": "Sure?"})]), "done")
    outcome = await agent_runner.run("go", target="clerk")
    assert outcome.status == "done"
    assert re.fullmatch(
        says("work.agent.tool_families"), json.loads(agent_runner.models.requests[1].results[0])["fallback"]
    )


async def test_a_tool_that_writes_is_refused_where_nobody_is_there_to_allow_it(
    agent_runner: AgentRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agent_runner.plain("global_tools: [fs_write]", name="clerk")
    write = Reply(calls=[("fs_write", {"path": "a.txt", "contents": "x"})])
    agent_runner.models.script(write, "pity", write, "done")
    await agent_runner.run("go", target="clerk")
    assert has_message(agent_runner.models.requests[1].results[0], "work.tools.permissions.Permissions._ask")
    assert not (tmp_path / "a.txt").exists()
    await agent_runner.run("go", target="clerk", allow=["fs_write"])
    assert (tmp_path / "a.txt").read_text() == "x"


async def test_the_session_that_a_file_names_is_the_command_lines_business(agent_runner: AgentRunner) -> None:
    agent_runner.plain("agent_session: work", name="clerk")
    assert (await agent_runner.run("hi", target="clerk")).status == "done"
    assert await agent_runner.root.sessions.list(None) == []


async def test_the_outcome_tells_turns_and_calls(agent_runner: AgentRunner) -> None:
    agent_runner.plain("auto_continue: true", name="clerk")
    agent_runner.models.script(Reply(calls=[("todo__list", {}), ("todo__clear", {})]), "done")
    wire: dict[str, Any] = (await agent_runner.run("go", target="clerk")).to_wire()
    assert (wire["turns"], wire["tool_calls"], wire["children"]) == (2, 2, [])
    finished = agent_runner.of("agent.finished")[0]
    assert (finished.turns, finished.tool_calls, finished.error) == (2, 2, None)


async def test_names_in_permissions_that_no_tool_has_are_warned_about(agent_runner: AgentRunner) -> None:
    agent_runner.plain(
        "global_tools: [fs_ls]\npermissions: {fs_wirte: deny, 'fs_*': ask, todo__add: deny}", name="clerk"
    )
    await agent_runner.run("hi", target="clerk", allow=["fs_raed", "fs_read"])
    warned = [data.message for data in agent_runner.of("run.warning") if data.code == "unknown_tool"]
    assert len(warned) == 2
    assert has_message(warned[0], "runs.file_checks.check_listed.4", name="fs_wirte")
    assert has_message(warned[0], "protocol.problems.suggestion", name="fs_write")
    assert has_message(warned[1], "runs.file_checks.check_user", what="…--allow", name="fs_raed")


async def test_an_alias_in_permissions_stands_for_its_tools(agent_runner: AgentRunner, tmp_path: Path) -> None:
    agent_runner.plain("global_tools: [fs]\npermissions: {fs: deny, fs_ls: allow}", name="clerk")
    agent_runner.models.script(Reply(calls=[("fs_cat", {"path": "x"}), ("fs_ls", {})]), "done")
    await agent_runner.run("hi", target="clerk")
    cat, ls = agent_runner.models.requests[1].results
    assert has_message(cat, "work.tools.permissions.Permissions.admit")
    assert "deny" not in ls


async def test_the_environment_may_choose_an_agents_tools(
    agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_runner.plain("global_tools: [fs_cat]\ncan_ask_user: false", name="my-clerk")
    monkeypatch.setenv("MY_CLERK_GLOBAL_TOOLS", '["fs_ls", "get_current_time"]')
    await agent_runner.run("hi", target="my-clerk")
    assert agent_runner.models.requests[0].offered == ["fs_ls", "get_current_time"]
    monkeypatch.setenv("MY_CLERK_GLOBAL_TOOLS", "fs_ls, get_current_time")
    await agent_runner.run("hi", target="my-clerk")
    assert agent_runner.models.requests[1].offered == ["fs_ls", "get_current_time"]
    monkeypatch.setenv("MY_CLERK_GLOBAL_TOOLS", '["fs_ls"')
    with pytest.raises(ConfigError, match=says("work.variables._texts", what="MY_CLERK_GLOBAL_TOOLS")):
        await agent_runner.run("hi", target="my-clerk")


@pytest.mark.parametrize("key", ["function_calling_support", "function_calling"])
async def test_without_function_calling_no_agent_runs(agent_runner: AgentRunner, key: str) -> None:
    agent_runner.plain("", name="clerk")
    settings = json.loads((agent_runner.config_dir / "config.yaml").read_text())
    (agent_runner.config_dir / "config.yaml").write_text(json.dumps({**settings, key: False}))
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        with pytest.raises(ConfigError, match=says("runs.begin._check_input.2")):
            await callboard.run("clerk", "hi", root=root)
