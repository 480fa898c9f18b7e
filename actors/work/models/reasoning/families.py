"""What models can, by their names, which are alike on all platforms: `claude-opus-5`, `anthropic/claude-opus-5`,
`anthropic.claude-opus-5-v1:0`. Of a name that says nothing nothing is assumed: its provider refuses what it can't do.

Sources: https://platform.claude.com/docs/en/build-with-claude/thinking and the pages of the models there;
https://ai.google.dev/gemini-api/docs/thinking; for OpenAI the matrix that pydantic-ai keeps
(`pydantic_ai/profiles/openai.py`, made by asking each model) and https://developers.openai.com/api/docs/models.
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
    """A model of Anthropic's: its `family` and version."""

    family: str
    version: tuple[int, int]

    @property
    def thinks(self) -> bool:
        """Whether it can."""
        return self.version >= (3, 7)

    @property
    def adapts(self) -> bool:
        """Whether it finds out for itself how much to think."""
        return self.version >= (4, 6)

    @property
    def takes_budgets(self) -> bool:
        """Whether it can be given a number of tokens; what samples (`temperature`) is taken by the same models."""
        return self.version < (4, 7)

    @property
    def thinks_unasked(self) -> bool:
        """Whether it thinks if a request does not speak of it."""
        return self.version >= (5, 0)

    @property
    def thinks_always(self) -> bool:
        """Whether it can't be told not to think. Such a model can't be forced to call a tool either."""
        return self.family in ("fable", "mythos") or (self.family == "opus" and self.version > (5, 0))

    @property
    def binds(self) -> bool:
        """Whether it refuses what it has thought if anything before it has changed since."""
        return self.version > (5, 0)


@lru_cache(maxsize=256)
def claude(name: str) -> Claude | None:
    """The Claude that is called so; None for other names."""
    if "claude-mythos-preview" in name:
        return Claude("mythos", (5, 0))
    found = _CLAUDE.search(name)
    if found is None:
        return None
    return Claude(found["early"] or found["late"] or "", (int(found["major"]), int(found["minor"] or 0)))


class Gemini(msgspec.Struct, frozen=True):
    """A model of Google's: its version, and what it is (`pro`, `flash`, `flash-lite`)."""

    version: tuple[int, int]
    size: str


@lru_cache(maxsize=256)
def gemini(name: str) -> Gemini | None:
    """The Gemini that is called so; None for other names, `gemini-flash-latest` among them."""
    found = _GEMINI.search(name)
    return None if found is None else Gemini((int(found[1]), int(found[2] or 0)), found[3] or "")


@lru_cache(maxsize=256)
def refusal(name: str, *, off: bool) -> str:
    """Why a model with that name can't think, or (`off`) can't help thinking; empty if it can, or that is not known."""
    anthropic, google = claude(name), gemini(name)
    if off:
        if (anthropic is not None and anthropic.thinks_always) or (
            google is not None and (google.version >= (3, 0) or (google.version == (2, 5) and google.size == "pro"))
        ):
            return "thinks always: `reasoning_effort: none` is not for it, the least is `minimal` or `low`"
        return ""
    if _THINKS_NOT.search(name) or (anthropic is not None and not anthropic.thinks):
        return "does not think before it answers: leave `reasoning_effort` and `thinking_budget` out for it"
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
"""What a model does that is not asked to think; the first that fits counts, later series think."""


@lru_cache(maxsize=256)
def openai_samples(name: str, effort: str | None) -> bool:
    """Whether one of OpenAI's own models takes `temperature` and `top_p`: not while it thinks. It may be an alias."""
    if effort is not None:
        return effort == "none"
    return next((unasked for start, unasked in _SERIES if name.startswith(start)), "never") != "thinks"


def openai_thinks(name: str) -> bool:
    """Whether one of OpenAI's own models can think."""
    return next((unasked for start, unasked in _SERIES if name.startswith(start)), "never") != "never"


_RESPONSES_ONLY = re.compile(
    r"gpt-\d(?:\.\d+)?-(?:pro|codex|cyber)|gpt-5\.(?:[4-9]|\d\d)|gpt-[6-9]|gpt-daybreak|o\d(?:-mini)?-(?:pro|deep-research)"
    r"|codex-|computer-use"
)


@lru_cache(maxsize=256)
def wants_responses(name: str) -> bool:
    """Whether one of OpenAI's own models wants its Responses API.

    Those of pro, codex and deep research are nowhere else. From gpt-5.4 on chat completions take no tools beside
    a `reasoning_effort` ("Function tools with reasoning_effort are not supported").
    """
    return _RESPONSES_ONLY.match(name) is not None
