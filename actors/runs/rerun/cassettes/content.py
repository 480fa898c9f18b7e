"""JSON forms of a cassette's contents, equal on every machine and in every run: requests, effects, and paths.

Paths that differ between machines have names: a cassette has `‹cwd›/notes.txt` (`NamedPaths`). A path is replaced
unless it is a part of a longer name. If several paths match, the longest is replaced.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from .....protocol.cassette import RecordedRequest, hash_of
from .....protocol.chat import AssistantTurn, ChatReply, ChatRequest, FilePart, ImagePart, Part, ToolTurn, Turn
from .....protocol.decoding import convert
from .....supervisors.process import Completed
from ....io.directories import cache_dir, state_dir
from ....io.temporary import system_directory
from ....work.tools.tool import VisibleResult, text_of

_ENDS = r"(?![\w.-]*[\w-])"
"""Text after a path, such as `/x`, a quote, or a full stop at the end of a sentence, but not more of the name."""


class NamedPaths:
    """Mapping between paths of this machine and names.

    Args:
        environ: environment of the process.
        cwd: working directory of the run.
        config_dir: configuration directory.
    """

    def __init__(self, environ: Mapping[str, str], cwd: Path, config_dir: Path) -> None:
        self._paths: dict[str, str] = {}
        self.add("cwd", cwd)
        self.add("config", config_dir)
        self.add("state", state_dir(environ))
        self.add("cache", cache_dir(environ))
        self.add("home", Path(environ.get("HOME") or Path.home()))
        self.add("tmp", system_directory(environ))

    def add(self, name: str, path: Path) -> None:
        """Add a name for a path. A path that has a name retains it."""
        # A run may report either form, for example if `/tmp` is a link.
        for form in (str(path.absolute()), os.path.realpath(path)):
            # `/` would match in every path.
            if len(form) > 1:
                self._paths.setdefault(form, name)
        self._compile()

    def add_word(self, name: str, word: str) -> None:
        """Add a name for a word other than a path, such as the id of the run."""
        self._paths.setdefault(word, name)
        self._compile()

    def _compile(self) -> None:
        # Alternatives are tried in order, so the longest path must be first.
        ordered = sorted(self._paths, key=len, reverse=True)
        self._out = re.compile("(?:" + "|".join(map(re.escape, ordered)) + ")" + _ENDS)
        back: dict[str, str] = {}
        for path, name in self._paths.items():
            # The first path of a name is the one that was passed, the second its real path.
            back.setdefault(name, path)
        self._back = back

    def named(self, value: Any) -> Any:
        """Return a value with names in place of the paths in its texts."""
        return texts(value, lambda text: self._out.sub(lambda found: f"‹{self._paths[found[0]]}›", text))

    def on_this_machine(self, value: Any) -> Any:
        """Return a value with the paths of this machine in place of names in its texts."""

        def put(found: re.Match[str]) -> str:
            return self._back.get(found[1], found[0])

        return texts(value, lambda text: re.sub(r"‹(\w+)›", put, text) if "‹" in text else text)


def texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with its texts changed; keys are not changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: texts(each, change) for key, each in value.items()}
    return [texts(each, change) for each in value] if isinstance(value, list | tuple) else value


_PARAMETERS = (
    *("tool_choice", "response_schema", "temperature", "top_p", "max_tokens", "reasoning_effort", "thinking_budget"),
    *("stop", "extra"),
)
_DEFAULTS = ChatRequest(messages=())


class CallIds:
    """Counted ids of tool calls: providers make new ids each time, so recordings use their order instead."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, id: str) -> str:
        """Return the id by count: `call-1` for the first id."""
        return self._known.setdefault(id, f"call-{len(self._known) + 1}")

    def in_turn(self, turn: Turn) -> Turn:
        """Return a turn with counted ids."""
        if isinstance(turn, AssistantTurn) and turn.tool_calls:
            calls = tuple(msgspec.structs.replace(call, id=self.of(call.id)) for call in turn.tool_calls)
            return msgspec.structs.replace(turn, tool_calls=calls)
        return msgspec.structs.replace(turn, call=self.of(turn.call)) if isinstance(turn, ToolTurn) else turn

    def in_reply(self, reply: ChatReply) -> ChatReply:
        """Return a reply with counted ids."""
        calls = tuple(msgspec.structs.replace(call, id=self.of(call.id)) for call in reply.tool_calls)
        return msgspec.structs.replace(reply, tool_calls=calls)


class RequestContent(msgspec.Struct, frozen=True):
    """Content of a request.

    Attributes:
        asked: the request, with hashes in place of its pieces.
        pieces: the pieces by hash.
    """

    asked: RecordedRequest
    pieces: dict[str, Any]

    @property
    def hash(self) -> str:
        """Hash of the whole request."""
        return hash_of(msgspec.to_builtins(self.asked))


def content_of(request: ChatRequest, paths: NamedPaths, ids: CallIds) -> RequestContent:
    """Return a request in the form that a cassette stores and compares: named paths, counted ids, pieces by hash."""
    # Stored once by hash: each request repeats all earlier messages, so a cassette would grow quadratically.
    pieces: dict[str, Any] = {}

    def piece(value: Any) -> str:
        named = paths.named(value)
        digest = hash_of(named)
        pieces[digest] = named
        return digest

    parameters = {name: value for name in _PARAMETERS if (value := getattr(request, name)) != getattr(_DEFAULTS, name)}
    asked = RecordedRequest(
        model=request.model,
        system=piece(request.system) if request.system else "",
        messages=tuple(piece(_turn(ids.in_turn(turn))) for turn in request.messages),
        tools=tuple(piece(msgspec.to_builtins(tool)) for tool in request.tools),
        parameters=paths.named(msgspec.to_builtins(parameters)),
    )
    return RequestContent(asked, pieces)


def lines_of(asked: RecordedRequest, pieces: dict[str, Any]) -> list[str]:
    """Return a request as readable lines, to be compared with the lines of another."""
    lines = [f"model: {asked.model or '(the default)'}"]
    if asked.system:
        lines += ["system:", *_indented(pieces.get(asked.system, asked.system))]
    for number, digest in enumerate(asked.messages, 1):
        lines += _message(number, pieces.get(digest, digest))
    for digest in asked.tools:
        tool = pieces.get(digest, {})
        lines.append(f"tool: {_json(tool)}" if isinstance(tool, dict) else f"tool: {digest}")
    lines += [f"{name}: {_json(value)}" for name, value in asked.parameters.items()]
    return lines


def lines_of_value(value: Any) -> list[str]:
    """Return a JSON value as readable lines."""
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2).decode().splitlines()


def _message(number: int, turn: Any) -> list[str]:
    if not isinstance(turn, dict):
        return [f"message {number}: {turn}"]
    said = turn.get("content", turn.get("text", ""))
    head = f"message {number} ({turn.get('role')}):"
    lines = [head, *_indented(said if isinstance(said, str) else _json(said))]
    lines += [f"  calls {call.get('name')} {_json(call.get('arguments', {}))}" for call in turn.get("tool_calls", ())]
    return lines


def _indented(text: Any) -> list[str]:
    return [f"  {line}" for line in str(text).splitlines()]


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _turn(turn: Turn) -> Any:
    """Return a turn as JSON values, with kind, size and digest in place of the bytes of images and files."""
    content = getattr(turn, "content", "")
    if isinstance(content, str):
        return msgspec.to_builtins(turn)
    bare = msgspec.to_builtins(msgspec.structs.replace(turn, content=""))
    return {**bare, "content": _parts(content)}


def _parts(parts: Sequence[Any]) -> list[Any]:
    shown = []
    for part in parts:
        if isinstance(part, ImagePart | FilePart) and part.data:
            # A digest is enough to compare, and a cassette with photographs in Base64 can't be read or reviewed.
            digest = hashlib.blake2b(part.data, digest_size=12).hexdigest()
            bare = msgspec.to_builtins(msgspec.structs.replace(part, data=b""))
            shown.append({**bare, "data": f"{len(part.data)} bytes, {digest}"})
        else:
            shown.append(msgspec.to_builtins(part))
    return shown


T = TypeVar("T")


def as_json(value: Any) -> Any:
    """Return an effect's value as JSON values."""
    if isinstance(value, VisibleResult):
        return {"shown": msgspec.to_builtins(value.parts)}
    if isinstance(value, Completed):
        return {
            "status": value.status,
            "signal": value.signal,
            "stderr": value.stderr_tail,
            "truncated": value.truncated,
            **_bytes(value.stdout),
        }
    try:
        return msgspec.to_builtins(value, str_keys=True)
    # A program's function may return any object; the recorded text is the one that the model read.
    except (TypeError, ValueError, RecursionError):
        return text_of(value)


def as_value(value: Any, kind: type[T]) -> T:
    """Return the value of this type that `as_json` has converted.

    Raises:
        msgspec.ValidationError, KeyError, TypeError: the JSON does not fit the type.
    """
    if kind is object:
        if isinstance(value, dict) and value.keys() == {"shown"}:
            return cast("T", VisibleResult(convert(value["shown"], tuple[Part, ...])))
        return cast("T", value)
    if kind is Completed:
        done = Completed(
            status=value["status"],
            signal=value["signal"],
            stderr_tail=value["stderr"],
            truncated=value["truncated"],
            stdout=base64.b64decode(value["base64"]) if "base64" in value else value["stdout"].encode(),
        )
        return cast("T", done)
    return convert(value, kind)


def _bytes(data: bytes) -> dict[str, str]:
    try:
        return {"stdout": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
