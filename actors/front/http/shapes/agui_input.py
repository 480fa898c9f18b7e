"""The body of an AG-UI request: the conversation so far, and its context.

Keys are theirs (camelCase); those that are not listed are taken and left alone, as their protocol wants it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from .....protocol.control.bounds import MOST, Json, Name, Object, Objects, Text


class AguiMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the conversation; `content` is text, or parts."""

    role: Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
    id: Name = ""
    content: Text | Objects | Object | None = None


class ResumeEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An answer to an interrupt. Of several that are open, one may be answered alone."""

    interrupt_id: Name
    status: Literal["resolved", "cancelled"]
    payload: Json = None


class RunAgentInput(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """See the module.

    Attributes:
        forwarded_props: `target` in it names what is run (as `model` of a chat completion does), if the query does not.
    """

    thread_id: Annotated[str, Meta(min_length=1, max_length=256)]
    run_id: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[AguiMessage], Meta(max_length=10_000)]
    state: Json = None
    forwarded_props: Json = None
    resume: Annotated[list[ResumeEntry], Meta(max_length=MOST)] | None = None
