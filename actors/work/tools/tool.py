"""A tool, as the agent loop sees it.

    async def add(me: Actor, arguments: Arguments) -> Json:
        return arguments["a"] + arguments["b"]

    tool = Tool(spec=ToolSpec(name="add", description="Adds two numbers.", parameters={...}), run=add)

`run` is the body of the call's own actor, `me`, a child of the agent that calls: it may spawn, ask a person, start
processes, and is interrupted by cancelling `me`. Its arguments fit the JSON Schema already. The model gets what it
returns: a text as it is, `Shown` as texts, images and files, anything else as JSON. What goes wrong it raises as
`ToolFailed`, which the model gets as `{"tool_call_error": ...}`; any other exception is a bug in the tool, shown the
same way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ....protocol.chat import FilePart, ImagePart, Part, TextPart
from ....protocol.chat import Tool as ToolSpec
from ....protocol.repeats import Repeats

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .path_rules import FileAccess

__all__ = ["Arguments", "Effect", "Json", "Meaning", "Origin", "Shown", "Tool", "ToolSpec"]

Json: TypeAlias = Any
Arguments: TypeAlias = dict[str, Json]
Run: TypeAlias = Callable[["Actor", Arguments], Awaitable[Json]]
RunWithin: TypeAlias = Callable[["Actor", Arguments, "FileAccess"], Awaitable[Json]]
Preview: TypeAlias = Callable[[Arguments, "FileAccess"], Awaitable[str]]
Decided: TypeAlias = Callable[["Actor", int, Arguments], Awaitable[Json]]
Meaning: TypeAlias = Callable[["Actor", Arguments], Awaitable[tuple["Tool", Arguments]]]

Effect: TypeAlias = Literal["none", "read", "write", "execute", "send"]
"""What a call can do to the world outside of the run.

Nothing, look (files, network), change files, run anything, send something to others or change it there.
"""

Origin: TypeAlias = Literal["builtin", "file", "function", "family", "mcp"]
"""Where a tool comes from: our library, a tool file, a Python function, a built-in family (`todo__add`), a server."""

TIMEOUT = 120.0
"""Seconds of one call, where neither the tool nor the settings say another number."""


class Shown(msgspec.Struct, frozen=True):
    """A result that a model is to see, and not only to read."""

    parts: tuple[Part, ...]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """See the module.

    Attributes:
        spec: name, description and JSON Schema (of type object) that the model is offered.
        run: does it.
        effect: decides with `origin` what the permission policy says by default.
        origin: where it comes from.
        timeout: seconds; None for a call that waits for people or other agents, and has a clock of its own.
        ordered: calls of one turn to ordered tools are played one after another, as the model wrote them. For those
            that change what the agent itself remembers, quickly: `todo__add` must not overtake `todo__init`.
        subject: the parameter that permission patterns are matched with (`command`, `path`); "" for the JSON text
            of all arguments.
        shell: whether the subject is a shell command, which patterns must not match by its beginning alone.
        alias: what rules may call it as well: a server's own name for it, where models know it by another.
        synonyms: other names of parameters, and what they stand for; the schema has the latter only.
        means: for a tool that calls others (`mcp_invoke_*`): the tool and the arguments that a call of it means. They
            need permission as well, and are what is run. Raises `ToolFailed` for a call that means nothing.
        reads: whether its result shows names or contents of files; see `permissions`.
        run_within: as `run`, for a tool that opens files in our process: it stays within what the permissions say of
            files. A call that was permitted is played by this.
        preview: what a call would change, as a unified diff for the person who is asked to allow it; "" where there is
            none to be shown. Raises `ToolFailed` for a call that fails whatever the person says.
        elsewhere: it is the caller of the run who plays it: a call of it ends the agent's work, and the next run goes
            on from its result. Only the agent that was named is offered it.
        repeats: what its author says of a call that is made twice; None if nothing.
        decided: in place of `run`, for a tool over what a conversation itself remembers: asks its decider (the actor
            above `me`) what the result is, by the number that the decider gave to the call.
        remembers: the MCP server that may remember a call as long as its process lives; "" if none does.
        labels: what is said of it where labels are followed: what it returns comes from `outside`, or is `private`; it
            `sends` away what it is given. See `work.labels`.
        definition: what it is besides, as a text: of a server's tool how the server is started or reached.
        file: the tool file that it is a function of; None for one that is no file's.
    """

    spec: ToolSpec
    run: Run
    effect: Effect = "none"
    origin: Origin = "builtin"
    timeout: float | None = TIMEOUT
    ordered: bool = False
    subject: str = ""
    shell: bool = False
    alias: str = ""
    synonyms: Mapping[str, str] = {}
    means: Meaning | None = None
    reads: bool = False
    run_within: RunWithin | None = None
    preview: Preview | None = None
    elsewhere: bool = False
    repeats: Repeats | None = None
    decided: Decided | None = None
    remembers: str = ""
    file: Path | None = None
    labels: frozenset[Literal["outside", "private", "sends"]] = frozenset()
    definition: str = ""

    @property
    def waits(self) -> bool:
        """Whether the same call may well come again, since it waits for others (`agent__collect`)."""
        return self.timeout is None and self.origin == "family"

    @property
    def name(self) -> str:
        """As the model calls it."""
        return self.spec.name


_encoder = msgspec.json.Encoder()


def text_of(value: Any) -> str:
    """A value as the model reads it: a text as it is, anything else as JSON; what JSON lacks, by its `repr`.

    Of what is shown, images and files by their names.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Shown):
        return "\n".join(part.text if isinstance(part, TextPart) else f"[{_named(part)}]" for part in value.parts)
    try:
        return _encoder.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return repr(value)


def _named(part: ImagePart | FilePart) -> str:
    return f"file {part.name}" if isinstance(part, FilePart) else f"image, {part.media_type}, {len(part.data)} bytes"


def shortened(text: str, limit: int) -> str:
    """The text in about `limit` characters: beginning and end, and between them how much is left out."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[... {len(text) - limit} characters left out ...]\n{text[len(text) - tail :]}"
