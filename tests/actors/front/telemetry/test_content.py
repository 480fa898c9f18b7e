"""Words of people and models are exported to those who asked for them, without secrets; to nobody else."""

from __future__ import annotations

import json

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply
from support.traced import Traced

import callboard
from callboard.actors.front.telemetry.attach import VARIABLE, wants_content
from callboard.actors.front.telemetry.spans import LONGEST, ContentRecorder
from callboard.actors.io.secret_redaction import PUT, Redactor

SECRET = "sk-live-4711-0815-veryverysecret"


def leak(text: str) -> str:
    """Says it back."""
    return f"TOOLSAID {text} {SECRET}"


def broken(text: str) -> str:
    """Fails."""
    raise callboard.CallboardError(f"TOOLBROKE {text}")


async def talk(agent_runner: AgentRunner) -> None:
    """A run whose every word is a marked one."""
    agent_runner.plain("instructions: SYSTEMSAID\ncan_ask_user: false", name="kid")
    agent_runner.models.script(
        Reply(calls=[("leak", {"text": "ARGUMENTSAID"}), ("broken", {"text": "ARGUMENTSAID"})]),
        Reply(status=503, error="PROVIDERSAID", headers={"retry-after": "0"}),
        f"MODELSAID {SECRET}",
    )
    outcome = await agent_runner.run("PERSONSAID", target="kid", tools=[leak, broken])
    assert outcome.status == "done"


async def test_by_default_no_words_are_exported(
    agent_runner: AgentRunner, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with traced.of(agent_runner.root):
        await talk(agent_runner)
        agent_runner.models.script(Reply(status=400, error="PROVIDERSAID"))
        assert (await agent_runner.run("PERSONSAID", target="kid")).status == "failed"
    exported = traced.everything()
    assert "execute_tool leak" in exported
    assert not [word for word in exported.split() if "SAID" in word or "BROKE" in word]
    assert SECRET not in exported


async def test_who_asks_for_content_gets_it_without_secrets(
    agent_runner: AgentRunner, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "true")
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    with traced.of(agent_runner.root):
        await talk(agent_runner)
    agent = traced.named("invoke_agent kid").attributes
    (asked,) = json.loads(str(agent["gen_ai.input.messages"]))
    assert asked == {"role": "user", "parts": [{"type": "text", "content": "PERSONSAID"}]}
    (said,) = json.loads(str(agent["gen_ai.output.messages"]))
    assert said["parts"][0]["content"] == f"MODELSAID {PUT}"
    leaked = traced.named("execute_tool leak").attributes
    assert json.loads(str(leaked["gen_ai.tool.call.arguments"])) == {"text": "ARGUMENTSAID"}
    assert str(leaked["gen_ai.tool.call.result"]) == f"TOOLSAID ARGUMENTSAID {PUT}"
    assert traced.named("execute_tool broken").status.description == "TOOLBROKE ARGUMENTSAID"
    chat = [span for span in traced.spans if span.name == "chat model"][-1]
    assert json.loads(str(chat.attributes["gen_ai.output.messages"])) == [
        {"role": "assistant", "parts": [{"type": "text", "content": f"MODELSAID {PUT}"}], "finish_reason": "stop"}
    ]
    assert "PROVIDERSAID" in str(chat.events[0].attributes["callboard.error"])
    assert SECRET not in traced.everything()


async def test_the_program_decides_before_the_environment(
    agent_runner: AgentRunner, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "true")
    with traced.of(agent_runner.root, content=False):
        await talk(agent_runner)
    assert "SAID" not in traced.everything()


async def test_what_a_try_said_that_failed_is_not_what_the_model_said(
    agent_runner: AgentRunner, traced: Traced
) -> None:
    agent_runner.plain("instructions: hi\ncan_ask_user: false", name="kid")
    agent_runner.models.script(Reply("half of it", drop="middle"), Reply("all of it"))
    with traced.of(agent_runner.root, content=True):
        await agent_runner.run("x", target="kid")
    (said,) = json.loads(str(traced.named("chat model").attributes["gen_ai.output.messages"]))
    assert said["parts"][0]["content"] == "all of it"


async def test_no_part_of_a_secret_is_left_where_what_is_said_in_pieces_is_cut(
    agent_runner: AgentRunner, traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret-" * 10)
    agent_runner.plain("instructions: hi\ncan_ask_user: false", name="kid")
    agent_runner.models.script(Reply("x" * (LONGEST - 20) + "secret-" * 10 + "y" * 100, piece=12))
    with traced.of(agent_runner.root, content=True):
        await agent_runner.run("x", target="kid")
    (said,) = json.loads(str(traced.named("chat model").attributes["gen_ai.output.messages"]))
    assert "secret" not in said["parts"][0]["content"]


@pytest.mark.parametrize(
    ("value", "asks"),
    [("true", True), ("TRUE ", True), ("span_only", True), ("", False), ("false", False), ("no_content", False)],
)
def test_what_the_variable_may_say(value: str, asks: bool) -> None:
    assert wants_content({VARIABLE: value}) is asks
    assert wants_content({}) is False


def test_a_long_text_is_cut() -> None:
    assert len(ContentRecorder(Redactor()).text("x" * 10 * LONGEST)) == LONGEST + 3
