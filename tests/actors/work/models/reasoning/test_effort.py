"""How much a model is asked to think: by whom, and what becomes of a level where tokens are wanted."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from support.messages import says

from callboard.actors.work.models import reasoning
from callboard.actors.work.models.catalog import ModelCatalog
from callboard.actors.work.models.reasoning import openai_samples, refusal, wants_responses
from callboard.protocol.chat import ChatRequest, ReasoningEffort, UserTurn
from callboard.protocol.errors import Unsupported
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings, read_settings

HI = (UserTurn("hi"),)
KEYS = {"OPENAI_API_KEY": "sk", "ANTHROPIC_API_KEY": "sk", "GEMINI_API_KEY": "sk"}


def asked(model: str, settings: Settings, **request: Any) -> tuple[str | None, int | None]:
    done = ModelCatalog(settings, KEYS).target(model).complete(ChatRequest(messages=HI, **request), settings)
    assert done.model == model
    return done.reasoning_effort, done.thinking_budget


def test_the_most_particular_one_counts_and_levels_and_tokens_are_never_mixed() -> None:
    models = (ModelSettings(name="gpt-5", reasoning_effort="low"), ModelSettings(name="gpt-5-mini"))
    client = ClientSettings(type="openai", name="openai", models=models)
    settings = Settings(clients=(client,), thinking_budget=5000)
    assert asked("openai:gpt-5", settings, thinking_budget=7) == (None, 7)
    assert asked("openai:gpt-5", settings) == ("low", None)
    assert asked("openai:gpt-5-mini", settings) == (None, 5000)
    assert asked("openai:gpt-5", Settings()) == (None, None)


def test_the_environment_wins_over_the_file_and_wrong_levels_are_told() -> None:
    environ = {"CALLBOARD_REASONING_EFFORT": "none", "CALLBOARD_THINKING_BUDGET": "5"}
    found, problems = read_settings("reasoning_effort: high\n", "config.yaml", environ)
    assert (found.reasoning_effort, found.thinking_budget, problems) == ("none", 5, [])
    text = "reasoning_effort: much\nclients:\n- {type: openai, models: [{name: a, thinking_budget: -1}]}\n"
    _, problems = read_settings(text, "config.yaml", {})
    assert [(each.code, each.line) for each in problems] == [("unknown_value", 1), ("out_of_range", 3)]


def test_what_the_settings_want_of_all_is_not_asked_of_one_that_can_not() -> None:
    settings = Settings(reasoning_effort="high")
    assert asked("openai:gpt-4o", settings) == (None, None)
    assert asked("claude:claude-3-5-haiku-20241022", settings) == (None, None)
    assert asked("gemini:gemini-2.0-flash", settings) == (None, None)
    assert asked("claude:claude-opus-5-5", Settings(reasoning_effort="none")) == (None, None)
    assert asked("openai:gpt-5", settings) == ("high", None)


@pytest.mark.parametrize(
    ("model", "wish", "why"),
    [
        ("openai:gpt-4o-mini", {"reasoning_effort": "low"}, "'openai:gpt-4o-mini' does not support reasoning"),
        ("claude:claude-3-5-sonnet", {"thinking_budget": 2000}, says("work.models.reasoning.refusal.2")),
        ("claude:claude-fable-5", {"reasoning_effort": "none"}, says("work.models.reasoning.refusal")),
        ("gemini:gemini-2.5-pro", {"thinking_budget": 0}, "always reasons"),
        ("gemini:gemini-3-flash", {"reasoning_effort": "none"}, "always reasons"),
    ],
)
def test_whoever_asks_for_what_a_model_can_not_do_is_refused(model: str, wish: Any, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        asked(model, Settings(), **wish)


def test_not_thinking_can_be_asked_of_one_that_does_not() -> None:
    assert asked("openai:gpt-4o", Settings(), reasoning_effort="none") == ("none", None)
    assert refusal("my-model", off=True) == refusal("my-model", off=False) == ""


def test_levels_and_tokens_stand_for_each_other() -> None:
    assert set(reasoning.BUDGETS) == set(get_args(ReasoningEffort))
    for level, tokens in reasoning.BUDGETS.items():
        assert reasoning.budget_of(ChatRequest(messages=HI, reasoning_effort=level)) == tokens
        back = reasoning.level_of(ChatRequest(messages=HI, thinking_budget=tokens))
        assert back == ("xhigh" if level == "max" else level)
    both = ChatRequest(messages=HI, reasoning_effort="low", thinking_budget=9)
    assert (reasoning.level_of(both), reasoning.budget_of(both)) == ("low", 9)
    assert reasoning.level_of(ChatRequest(messages=HI)) is reasoning.budget_of(ChatRequest(messages=HI)) is None


@pytest.mark.parametrize(
    ("name", "level", "samples"),
    [
        ("gpt-4o", None, True),
        ("gpt-5", None, False),
        ("gpt-5-chat-latest", None, True),
        ("gpt-5.1", None, True),
        ("gpt-5.1", "low", False),
        ("gpt-5.4", "none", True),
        ("gpt-5.5", None, False),
        ("gpt-5.5", "none", True),
        ("gpt-6", None, False),
        ("o3", None, False),
        ("ft:gpt-4o:x", None, True),
        ("my-deployment", None, True),
        ("my-deployment", "low", False),
    ],
)
def test_openais_models_take_no_temperature_while_they_think(name: str, level: str | None, samples: bool) -> None:
    assert openai_samples(name, level) is samples


@pytest.mark.parametrize(
    "name",
    ["gpt-5-pro", "gpt-5.2-pro-2025-12-11", "gpt-5-codex", "gpt-5.1-codex-max", "o1-pro", "o3-pro-2025-06-10",
     "o3-deep-research", "o4-mini-deep-research-2025-06-26", "codex-mini-latest", "computer-use-preview",
     "gpt-5.4", "gpt-5.5-2026-04-23", "gpt-5.6-sol"],
)  # fmt: skip
def test_models_that_want_the_responses_api(name: str) -> None:
    assert wants_responses(name)


@pytest.mark.parametrize("name", ["gpt-4o", "gpt-4.1-mini", "gpt-5", "gpt-5-mini", "gpt-5.1", "o3", "o4-mini", "o1"])
def test_models_that_do_not(name: str) -> None:
    assert not wants_responses(name)
