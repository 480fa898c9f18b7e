"""Model capabilities by name.

Names are similar on all platforms: `claude-opus-5`, `anthropic/claude-opus-5`, `anthropic.claude-opus-5-v1:0`. An
unknown name restricts nothing: the provider refuses unsupported options.

Sources: https://platform.claude.com/docs/en/build-with-claude/thinking and the pages of the models there;
https://ai.google.dev/gemini-api/docs/thinking; for OpenAI the table of pydantic-ai
(`pydantic_ai/profiles/openai.py`, the result of requests to each model) and
https://developers.openai.com/api/docs/models.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

import msgspec

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


# --- OpenAI -----------------------------------------------------------------------------------------------

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
