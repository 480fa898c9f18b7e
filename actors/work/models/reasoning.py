"""Reasoning options of requests: levels and budgets, the rules of Claude, and model capabilities by name.

A request has `reasoning_effort` (a level) or `thinking_budget` (tokens). Both come from the most specific of three
sources: the request (of a node or agent), the model, `config.yaml`. Half of the providers accept levels and the others
budgets, so a missing one is derived from the other. A setting of `config.yaml` for all models is ignored for a model
that does not support it. From the other two sources, an unsupported effort raises Unsupported.

May import `protocol` only. The codecs import this module; it imports none of them. Start with `wanted`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Literal

import msgspec

from ....protocol.chat import AssistantTurn, ChatRequest, ReasoningEffort, ToolTurn
from ....protocol.errors import Unsupported
from ....protocol.settings import ModelSettings, Settings

BUDGETS: dict[ReasoningEffort, int] = {
    "none": 0,
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
    "max": 32768,
}
"""Token budget of each level."""

_UP_TO: tuple[tuple[int, ReasoningEffort], ...] = (
    (0, "none"),
    (1024, "minimal"),
    (4096, "low"),
    (12288, "medium"),
    (24576, "high"),
)


def level_of(request: ChatRequest) -> ReasoningEffort | None:
    """Return the requested level, or the one nearest to the requested budget; None if neither is set."""
    if request.reasoning_effort is not None or request.thinking_budget is None:
        return request.reasoning_effort
    budget = request.thinking_budget
    return next((name for most, name in _UP_TO if budget <= most), "xhigh")


def budget_of(request: ChatRequest) -> int | None:
    """Return the requested token budget, or that of the requested level; None if neither is set."""
    if request.thinking_budget is not None or request.reasoning_effort is None:
        return request.thinking_budget
    return BUDGETS[request.reasoning_effort]


def wanted(request: ChatRequest, id: str, name: str, model: ModelSettings, settings: Settings) -> dict[str, Any]:
    """Return the reasoning fields that the model's entry or the settings add to `request`; usually none.

    A value of the settings that the model does not support is ignored.

    Args:
        id: id of the model, for the error.
        name: the provider's name of the model.

    Raises:
        Unsupported: the request or the model's entry asks for reasoning, or turns it off, and the model does not
            support that.
    """
    for asks in (request, model, settings):
        effort, tokens = asks.reasoning_effort, asks.thinking_budget
        if effort is None and tokens is None:
            continue
        # Turning reasoning off is supported by a model without reasoning, so the two cases are checked separately.
        if why := refusal(name, off=effort == "none" or (effort is None and tokens == 0)):
            if asks is settings:
                return {}
            raise Unsupported(f"'{id}' {why}")
        # Both fields from one source: a level of the model with a budget of the settings would contradict each other.
        return {} if asks is request else {"reasoning_effort": effort, "thinking_budget": tokens}
    return {}


# --- Claude, on Anthropic's own API, Bedrock and Vertex AI
#
#     up to 4.5   `thinking: {type: enabled, budget_tokens}`, only on request
#     4.6         `thinking: {type: adaptive}` with `output_config: {effort}`, or a budget
#     4.7, 4.8    adaptive only
#     5           reasons by default, unless `{type: disabled}`; fable, mythos and opus above 5.0 always do
#
# While the model reasons, it accepts no `temperature` or `top_p`, and no forced tool: only the prompt contains a
# response schema. If the request forces a tool, reasoning is turned off where the model allows that. From 4.7 on, the
# models accept no sampling options at all.
#
# The `max_tokens` of a reply include its reasoning. A budget that is not below them becomes three quarters of them, and
# below 1,024 tokens there is no reasoning. A reply without a limit of its own gets additional tokens for reasoning.
#
# With a budget, open tool calls must be preceded by the reasoning that led to them. If it is missing (another model
# made the calls, or reasoning was off), this reply has no reasoning. The newest models refuse stored reasoning if
# anything before it has changed (a summary, another tool), unless the request asks them to drop it. It does so.
#
# Sources: https://platform.claude.com/docs/en/build-with-claude/thinking, .../preserved-thinking,
# https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-adaptive-thinking.html.


Json = Any

LEAST_BUDGET = 1024


class ThinkingPlan(msgspec.Struct, frozen=True):
    """Reasoning options of a request, with their consequences for its other options.

    Attributes:
        thinking: value of the key `thinking`; None to omit it.
        effort: `effort` of `output_config`; None to omit it.
        on: True if the model will reason.
        forces: True if a tool can be forced; else the model chooses.
        samples: True if `temperature` and `top_p` are accepted.
        room: tokens for reasoning to add to the limit of a reply that has no limit of its own.
    """

    thinking: Json = None
    effort: str | None = None
    on: bool = False
    forces: bool = True
    samples: bool = True
    room: int = 0


def plan(request: ChatRequest, name: str, *, forced: bool) -> ThinkingPlan:
    """Return the reasoning options for a request.

    Args:
        name: the provider's name of the model.
        forced: True if the request forces a tool.
    """
    model = claude(name) or Claude("", (4, 5))  # an alias of an unknown model: most accept budgets
    level = level_of(request)
    asked = level is not None and level != "none"
    always, samples = model.thinks_always, model.takes_budgets
    # Checked first: a forced tool call and reasoning in one request make the API refuse it.
    if forced and not always:
        return ThinkingPlan({"type": "disabled"} if model.thinks_unasked else None, samples=samples)
    if not asked and not always and (level == "none" or not model.thinks_unasked):
        return ThinkingPlan({"type": "disabled"} if level and model.thinks_unasked else None, samples=samples)
    if asked and (not model.adapts or (model.takes_budgets and request.thinking_budget)):
        return _with_budget(request, budget_of(request) or 0, samples=samples)
    thinking: dict[str, Json] = {"type": "adaptive"}
    if asked and not model.takes_budgets:
        thinking["display"] = "summarized"
    if model.binds:
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    chosen = ("high" if level is None else _level(model, level)) if asked else None
    return ThinkingPlan(
        thinking if asked or model.binds else None,
        effort=chosen,
        on=True,
        forces=not always,
        samples=False,
        room=BUDGETS[level if asked and level else "high"],
    )


def _with_budget(request: ChatRequest, budget: int, *, samples: bool) -> ThinkingPlan:
    most = request.max_tokens
    budget = max(budget, LEAST_BUDGET)
    if most is not None and budget >= most:
        budget = most * 3 // 4
    if budget < LEAST_BUDGET or _is_open_without(request):
        return ThinkingPlan(samples=samples)
    return ThinkingPlan({"type": "enabled", "budget_tokens": budget}, on=True, samples=False, room=budget)


def _is_open_without(request: ChatRequest) -> bool:
    """Return True if the request ends with results of tool calls without reasoning of this model before them."""
    if not request.messages or not isinstance(request.messages[-1], ToolTurn):
        return False
    called = next((turn for turn in reversed(request.messages) if isinstance(turn, AssistantTurn)), None)
    return called is not None and (called.thought is None or called.thought.by != request.model)


def _level(model: Claude, level: ReasoningEffort) -> str:
    if level == "minimal":
        return "low"
    return "max" if level == "xhigh" and model.takes_budgets else level


# --- capabilities by name
#
# Names are similar on all platforms: `claude-opus-5`, `anthropic/claude-opus-5`, `anthropic.claude-opus-5-v1:0`. An
# unknown name restricts nothing: the provider refuses unsupported options.
#
# Sources: https://platform.claude.com/docs/en/build-with-claude/thinking and the pages of the models there;
# https://ai.google.dev/gemini-api/docs/thinking; for OpenAI the table of pydantic-ai
# (`pydantic_ai/profiles/openai.py`, the result of requests to each model) and
# https://developers.openai.com/api/docs/models.


_CLAUDE = re.compile(
    r"claude-(?:(?P<early>opus|sonnet|haiku|fable|mythos)-)?(?P<major>\d)(?:[.-](?P<minor>\d{1,2}))?(?!\d)"
    r"(?:-(?P<late>opus|sonnet|haiku))?"
)
_GEMINI = re.compile(r"gemini-(\d+)(?:\.(\d+))?(?:-(pro|flash-lite|flash))?")
_OPENAI = re.compile(r"(?:^|[/.])(?:gpt-\d|chatgpt-|o\d|codex-)")
_THINKS_NOT = re.compile(r"(?:^|[/.])(?:gpt-3|gpt-4|chatgpt-|gpt-5-chat|gemini-1|gemini-2\.0|claude-(?:2|instant))")


class Claude(msgspec.Struct, frozen=True):
    """Claude model: `family` and version, with the capabilities that follow from them."""

    family: str
    version: tuple[int, int]

    @property
    def thinks(self) -> bool:
        """True if the model supports reasoning."""
        return self.version >= (3, 7)

    @property
    def adapts(self) -> bool:
        """True if the model supports adaptive reasoning: it chooses the amount itself."""
        return self.version >= (4, 6)

    @property
    def takes_budgets(self) -> bool:
        """True if the model accepts a token budget. The same models accept sampling options (`temperature`)."""
        return self.version < (4, 7)

    @property
    def thinks_unasked(self) -> bool:
        """True if the model reasons by default."""
        return self.version >= (5, 0)

    @property
    def thinks_always(self) -> bool:
        """True if reasoning cannot be turned off. Such a model also refuses a forced tool call."""
        return self.family in ("fable", "mythos") or (self.family == "opus" and self.version > (5, 0))

    @property
    def binds(self) -> bool:
        """True if the model refuses stored reasoning after a change of anything before it."""
        return self.version > (5, 0)


@lru_cache(maxsize=256)
def claude(name: str) -> Claude | None:
    """Return the Claude model of a name; None for other names."""
    # This name contains no version.
    if "claude-mythos-preview" in name:
        return Claude("mythos", (5, 0))
    found = _CLAUDE.search(name)
    if found is None:
        return None
    # The family precedes the version since Claude 4 (`claude-opus-4-5`) and followed it before (`claude-3-7-sonnet`).
    return Claude(found["early"] or found["late"] or "", (int(found["major"]), int(found["minor"] or 0)))


class Gemini(msgspec.Struct, frozen=True):
    """Gemini model: version and size (`pro`, `flash`, `flash-lite`)."""

    version: tuple[int, int]
    size: str


@lru_cache(maxsize=256)
def gemini(name: str) -> Gemini | None:
    """Return the Gemini model of a name; None for names without a version, such as `gemini-flash-latest`."""
    found = _GEMINI.search(name)
    return None if found is None else Gemini((int(found[1]), int(found[2] or 0)), found[3] or "")


@lru_cache(maxsize=256)
def refusal(name: str, *, off: bool) -> str:
    """Return why a model cannot reason, or (`off`) cannot turn reasoning off; empty if it can or is unknown."""
    anthropic, google = claude(name), gemini(name)
    if off:
        if (anthropic is not None and anthropic.thinks_always) or (
            google is not None and (google.version >= (3, 0) or (google.version == (2, 5) and google.size == "pro"))
        ):
            return "always reasons: `reasoning_effort: none` is not supported, the lowest level is `minimal` or `low`"
        return ""
    if _THINKS_NOT.search(name) or (anthropic is not None and not anthropic.thinks):
        return "does not support reasoning: remove `reasoning_effort` and `thinking_budget` for it"
    return ""


# --- capabilities of OpenAI's models

Unasked = Literal["thinks", "answers", "never"]

_SERIES: tuple[tuple[str, Unasked], ...] = (
    ("gpt-5.4-pro", "thinks"),
    ("gpt-5.4", "answers"),
    ("gpt-5.3-chat", "thinks"),
    ("gpt-5.3", "answers"),
    ("gpt-5.2-pro", "thinks"),
    ("gpt-5.2-chat", "thinks"),
    ("gpt-5.2", "answers"),
    ("gpt-5.1-codex", "thinks"),
    ("gpt-5.1-chat", "thinks"),
    ("gpt-5.1", "answers"),
    ("gpt-5-chat", "never"),
    ("gpt-3", "never"),
    ("gpt-4", "never"),
    ("gpt-", "thinks"),
    ("codex-", "thinks"),
    ("o1", "thinks"),
    ("o3", "thinks"),
    ("o4", "thinks"),
)
"""Default behaviour by the start of a name, without a reasoning effort. The first match counts.

`gpt-` is last, so that a future series counts as reasoning by default.
"""


@lru_cache(maxsize=256)
def openai_samples(name: str, effort: str | None) -> bool:
    """Return True if an OpenAI model accepts `temperature` and `top_p`, which it does not while it reasons.

    An unknown name, for example a deployment of Azure, counts as a model without reasoning.
    """
    if effort is not None:
        return effort == "none"
    return next((unasked for start, unasked in _SERIES if name.startswith(start)), "never") != "thinks"


def openai_thinks(name: str) -> bool:
    """Return True if an OpenAI model supports reasoning."""
    return next((unasked for start, unasked in _SERIES if name.startswith(start)), "never") != "never"


_RESPONSES_ONLY = re.compile(
    r"gpt-\d(?:\.\d+)?-(?:pro|codex|cyber)|gpt-5\.(?:[4-9]|\d\d)|gpt-[6-9]|gpt-daybreak|o\d(?:-mini)?-(?:pro|deep-research)"
    r"|codex-|computer-use"
)


@lru_cache(maxsize=256)
def wants_responses(name: str) -> bool:
    """Return True if an OpenAI model needs the Responses API.

    Pro, codex and deep-research models have no other interface. From gpt-5.4 on, chat completions accept no tools
    together with a `reasoning_effort` ("Function tools with reasoning_effort are not supported").
    """
    return _RESPONSES_ONLY.match(name) is not None
