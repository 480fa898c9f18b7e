"""Agents with `documents`: what is found goes into the prompt, or the model looks for it itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from support.agent_runs import AgentRunner
from support.fake_models import Reply
from support.messages import has_message


def librarian(agent_runner: AgentRunner, config: str = "", name: str = "librarian") -> Path:
    home = agent_runner.plain(f"instructions: Answer.\ndocuments: [notes/]\n{config}", name=name)
    (home / "notes").mkdir()
    (home / "notes" / "cake.md").write_text("A cake needs flour and eggs.\n")
    (home / "notes" / "moon.md").write_text("The moon is far away.\n")
    return home


def said(agent_runner: AgentRunner, number: int = 0) -> str:
    """The last message of a request."""
    return str(agent_runner.models.requests[number].json["messages"][-1]["content"])


def system(agent_runner: AgentRunner, number: int = 0) -> str:
    return str(agent_runner.models.requests[number].json["messages"][0]["content"])


def tools(agent_runner: AgentRunner) -> list[Any]:
    return [tool["function"]["name"] for tool in agent_runner.models.requests[0].json.get("tools", [])]


async def test_the_prompt_comes_with_what_the_documents_say(knowing: AgentRunner) -> None:
    home = librarian(knowing)
    knowing.models.script("Flour.")
    outcome = await knowing.run("which flour?", "librarian")
    assert outcome.output == "Flour."
    assert "[Source: notes/cake.md]\nA cake needs flour and eggs." in said(knowing)
    assert "\n- notes/cake.md\n" in said(knowing)
    assert said(knowing).endswith("\n\nwhich flour?")
    assert (home / "documents.kb" / "current").is_file()
    assert "knowledge__search" not in tools(knowing)


async def test_the_template_is_the_users(knowing: AgentRunner, monkeypatch: Any) -> None:
    librarian(knowing)
    template = "Q: __INPUT__ S: __SOURCES__ C: __CONTEXT__"
    monkeypatch.setattr(knowing.root, "settings", _with(knowing, rag_template=template, rag_top_k=1))
    knowing.models.script("x")
    await knowing.run("__CONTEXT__ flour", "librarian")
    expected = "Q: __CONTEXT__ flour S: - notes/cake.md C: [Source: notes/cake.md]\nA cake needs flour and eggs."
    assert said(knowing) == expected


async def test_nothing_found_leaves_the_prompt_alone(knowing: AgentRunner) -> None:
    home = librarian(knowing)
    for path in (home / "notes").iterdir():
        path.write_text("")
    knowing.models.script("x")
    await knowing.run("which flour?", "librarian")
    assert said(knowing) == "which flour?"
    assert "knowledge_empty" in [each.code for each in knowing.of("run.warning")]


async def test_a_model_may_look_things_up_itself(knowing: AgentRunner) -> None:
    librarian(knowing, "knowledge: tool")
    search = ("knowledge__search", {"query": "flour", "top_k": "1"})
    knowing.models.script(Reply(calls=[search]), "Flour.")
    await knowing.run("which flour?", "librarian")
    assert said(knowing, 0) == "which flour?"
    assert "`knowledge__search` finds passages in documents that were put at hand for you: notes/." in system(knowing)
    assert said(knowing, 1) == "[Source: notes/cake.md, lines 1-1]\nA cake needs flour and eggs."


async def test_a_search_can_be_kept_to_some_sources(knowing: AgentRunner) -> None:
    librarian(knowing, "knowledge: both")
    search = ("knowledge__search", {"query": "flour", "source": "*/moon.md"})
    nothing = ("knowledge__search", {"query": "flour", "source": "*/sun.md"})
    knowing.models.script(Reply(calls=[search, nothing]), "x")
    await knowing.run("which flour?", "librarian")
    assert "cake needs flour" in said(knowing, 0)
    results = [message["content"] for message in knowing.models.requests[1].json["messages"][-2:]]
    assert has_message(results[1], "work.agent.tool_families.lookup_tool.search.3", source="*/sun.md")
    assert "cake" not in results[0]


async def test_an_empty_search_is_told_to_the_model(knowing: AgentRunner) -> None:
    librarian(knowing, "knowledge: tool")
    knowing.models.script(Reply(calls=[("knowledge__search", {"query": "  "})]), "x")
    assert (await knowing.run("hello", "librarian")).status == "done"
    assert has_message(said(knowing, 1), "work.agent.tool_families.lookup_tool.search")


async def test_an_agent_without_documents_is_offered_no_search(knowing: AgentRunner) -> None:
    knowing.plain("instructions: Answer.\nknowledge: tool", name="plain")
    knowing.models.script("x")
    await knowing.run("hello", "plain")
    assert tools(knowing) == [name for name in tools(knowing) if name != "knowledge__search"]


async def test_a_called_agent_looks_into_its_own_documents(knowing: AgentRunner) -> None:
    librarian(knowing)
    knowing.agent(
        "start: a\nnodes:\n  a: {type: agent, agent: librarian, prompt: which flour?, next: e,"
        " state_updates: {said: '{{output}}'}}\n  e: {type: end, output: '{{said}}'}"
    )
    knowing.models.script("Flour.")
    assert (await knowing.run()).output == "Flour."
    assert "A cake needs flour" in said(knowing)


def _with(agent_runner: AgentRunner, **changes: Any) -> Any:
    return msgspec.structs.replace(agent_runner.root.settings, **changes)
