"""A tool: the specification for the model, and the function that executes a call.

    async def add(me: Actor, arguments: Arguments) -> Json:
        return arguments["a"] + arguments["b"]

    tool = Tool(spec=ToolSpec(name="add", description="Adds two numbers.", parameters={...}), run=add)

`run` is the body of the actor of one call, `me`, a child of the calling agent. It may spawn actors, ask the user, and
start processes; cancelling `me` interrupts it. The arguments already fit the JSON Schema. The model receives the return
value: a text unchanged, a `VisibleResult` as texts, images and files, anything else as JSON. `run` reports an expected
failure by raising `ToolFailed`, which the model receives as `{"tool_call_error": ...}`. Any other exception is a bug in
the tool and is reported the same way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ....protocol.chat import FilePart, ImagePart, Part, TextPart
from ....protocol.chat import Tool as ToolSpec
from ....protocol.interrupted_calls import Repeats

if TYPE_CHECKING:
    from ....supervisors import Actor
    from .functions import RunsAgents
    from .rules import FileAccess

__all__ = ["Arguments", "Effect", "Json", "Meaning", "Origin", "Tool", "ToolSpec", "VisibleResult"]

Json: TypeAlias = Any
Arguments: TypeAlias = dict[str, Json]
Run: TypeAlias = Callable[["Actor", Arguments], Awaitable[Json]]
RunWithin: TypeAlias = Callable[["Actor", Arguments, "FileAccess"], Awaitable[Json]]
RunFor: TypeAlias = Callable[["Actor", Arguments, "RunsAgents | None", str], Awaitable[Json]]
Preview: TypeAlias = Callable[[Arguments, "FileAccess"], Awaitable[str]]
Decided: TypeAlias = Callable[["Actor", int, Arguments], Awaitable[Json]]
WasDone: TypeAlias = Callable[["Actor"], Awaitable[bool | None]]
Meaning: TypeAlias = Callable[["Actor", Arguments], Awaitable[tuple["Tool", Arguments]]]

Effect: TypeAlias = Literal["none", "read", "write", "execute", "send"]
"""Effect of a call on the world outside of the run.

`none`: no effect. `read`: reads files or the network. `write`: changes files. `execute`: runs any program. `send`:
sends data to other systems, or changes data there.
"""

Origin: TypeAlias = Literal["builtin", "file", "function", "family", "mcp"]
"""Source of a tool: built in, a tool file, a Python function, a built-in family (`todo__add`), or an MCP server."""

Access: TypeAlias = Literal["process", "files", "web", "nothing"]
"""Mechanism of a call: a child process, file access or web requests of this process, or no access outside of the run.
"""

Label: TypeAlias = Literal["outside", "private", "sends", "trusted", "public", "inside", "remote"]

TIMEOUT = 120.0
"""Default time limit of a call in seconds, where neither the tool nor the settings set one."""


class VisibleResult(msgspec.Struct, frozen=True):
    """A result with images or files that the model receives as content parts."""

    parts: tuple[Part, ...]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A callable tool with the properties that permissions, labels and recovery need.

    Attributes:
        spec: name, description and JSON Schema (of type object) for the model.
        run: executes a call.
        effect: with `origin`, selects the default of the permission policy.
        origin: the source of the tool.
        timeout: seconds. None for a call that waits for users or other agents and has its own time limits.
        ordered: calls of one turn to ordered tools run one after another, in the order of the model's reply. For fast
            calls that change the agent's own state: `todo__add` must not overtake `todo__init`.
        subject: the parameter that permission patterns are matched with (`command`, `path`); "" for the JSON text
            of all arguments.
        shell: True if the subject is a shell command. A pattern must not match such a line by its beginning alone.
        alias: a second name that permission rules accept: the server's own name, where models use another one.
        synonyms: other names of parameters, mapped to the names in the schema. The schema contains only the latter.
        means: for a tool that calls other tools (`mcp_invoke_*`): returns the tool and the arguments behind a call.
            That call needs permission as well, and is the one executed. Raises `ToolFailed` for an invalid call.
        reads: True if the result contains names or contents of files; see `permissions`.
        run_within: replaces `run` for a tool that opens files in this process: it also receives the permitted
            `FileAccess` and must stay within it. A permitted call runs through this function.
        run_for: replaces `run` for a function with a context: it also receives the calling agent and the call's id.
        preview: returns the change that a call would make, as a unified diff for the approval question; "" if there
            is no diff. Raises `ToolFailed` for a call that would fail even with approval.
        elsewhere: the caller of the run executes it. A call ends the agent's work, and the next run resumes with the
            result. Only the target agent of the run is offered such a tool.
        repeats: the author's declaration about calls that are made twice; None if there is none.
        was_done: for a call that was in flight when its process was killed: returns True if it was done, False if
            not, None if unknown.
        decided: replaces `run` for a tool over the conversation's own state: asks the decider (the actor above `me`)
            for the result, by the number that the decider gave to the call.
        remembers: the MCP server that may hold state from a call for as long as its process lives; "" if none.
        access: the mechanism by which a call of a built-in tool or of a tool file reaches the world. Labels depend
            on it. The default is a process.
        labels: declared information flow: for an MCP tool the labels in the user's `mcp.json`, and `remote` for a
            server that is not a local process. `outside` and `private` describe results, `sends` describes arguments.
            See `work.labels` for the rules without a declaration.
        server: name and command words of the MCP server that the tool calls.
        definition: further identity of the tool as text: for an MCP tool, how its server is started or reached.
        file: the tool file that defines it; None if no file does.
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
    run_for: RunFor | None = None
    preview: Preview | None = None
    elsewhere: bool = False
    repeats: Repeats | None = None
    was_done: WasDone | None = None
    decided: Decided | None = None
    remembers: str = ""
    file: Path | None = None
    access: Access = "process"
    labels: frozenset[Label] = frozenset()
    server: tuple[str, ...] = ()
    definition: str = ""

    @property
    def waits(self) -> bool:
        """True if repeated identical calls are normal, because the tool waits for others (`agent__collect`)."""
        return self.timeout is None and self.origin == "family"

    @property
    def name(self) -> str:
        return self.spec.name


_encoder = msgspec.json.Encoder()


def text_of(value: Any) -> str:
    """Return a value as the model reads it: a text unchanged, anything else as JSON.

    The `repr` replaces a value that JSON cannot encode. Images and files of a `VisibleResult` appear by name.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, VisibleResult):
        return "\n".join(part.text if isinstance(part, TextPart) else f"[{_named(part)}]" for part in value.parts)
    try:
        return _encoder.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return repr(value)


def _named(part: ImagePart | FilePart) -> str:
    return f"file {part.name}" if isinstance(part, FilePart) else f"image, {part.media_type}, {len(part.data)} bytes"


def shortened(text: str, limit: int) -> str:
    """Return the text in about `limit` characters: its beginning, the number of characters left out, its end."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    from ....protocol.kernel.text_cuts import after_cut, before_cut

    # A text without a word boundary would be cut to nothing. Keep parts of it, because a user who approves a call must
    # see some of the argument.
    beginning = before_cut(text[:head]) or text[:head]
    end = after_cut(text[len(text) - tail :]) or text[len(text) - tail :]
    return f"{beginning}\n[... {len(text) - limit} characters left out ...]\n{end}"
