"""A cassette as a model: `cassette:FILE` returns the replies of a recorded run.

A replay (`--replay`) takes everything that a run got from outside from the cassette, so no tool runs. This model
takes only the replies: tools, processes, permissions, and the journal work as with any model. `callboard demo` relies
on it.

A reply is selected by the agent that asks and by the number of replies in its conversation. The request contains
both, so a run that resumes in another process continues at the right reply, and results of tools may differ from the
recording. The agent is identified by its actor path below the run, without the random digits of child ids
(`/fix/repair/lead/children/agent_reader/reader`).

Child ids differ in each run. The id `agent_reader_1a2b3c4d` in a reply is replaced by the id of the child with the
same name in the current conversation, in order of appearance. Paths are recorded as `‹cwd›`, `‹home›`, `‹tmp›`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import trio

from ....protocol.cassette import AnyLine, CassetteDiffers, Head, Piece, ReplyLine, read_cassette
from ....protocol.chat import CASSETTE, AssistantTurn, ChatReply, ChatRequest, Delta, ReasoningDelta, TextDelta, Turn
from ....protocol.decoding import convert
from ....protocol.errors import ConfigError
from ...io.directories import cache_dir, state_dir
from ...io.temporary import system_directory

_CHILD = re.compile(r"\b(agent_[\w-]+?)_([0-9a-f]{8})\b")
_WORDS = re.compile(r"\s*\S+")
_LONGEST_PIECE = 0.05
"""Seconds between two words of a reply, at most."""


class Cassette:
    """The replies of a cassette.

    Args:
        file: path, relative to the working directory.
        environ: environment, for the directories in replies.

    Attributes:
        model: id of the recorded model, whose prices apply; "" if unknown.

    Raises:
        ConfigError: the file cannot be read.
        InvalidFile: the file is not a cassette.
    """

    def __init__(self, file: str, environ: Mapping[str, str]) -> None:
        self._file = file
        self._places = {
            "cwd": str(Path.cwd()),
            "home": environ.get("HOME") or str(Path.home()),
            "state": str(state_dir(environ)),
            "cache": str(cache_dir(environ)),
            "tmp": str(system_directory(environ)),
        }
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "the file is not UTF-8 text"
            raise ConfigError(
                f"the cassette {file} of the model '{CASSETTE}:{file}' can't be read: {why}; record one: "
                "callboard run TARGET --record FILE"
            ) from error
        lines = read_cassette(text, file)
        head = lines[0]
        assert isinstance(head, Head)
        # A cassette recorded with another cassette as its model: the model behind that one is unknown.
        self.model = head.model if head.model.partition(":")[0] != CASSETTE else ""
        self._pieces = {line.hash: line.value for line in lines if isinstance(line, Piece)}
        self._replies = _by_agent(lines)

    async def reply(self, path: str, request: ChatRequest, hears: Callable[[Delta], object]) -> ChatReply:
        """Return the reply to a request of the actor `path`, after the recorded seconds.

        Args:
            hears: called with the reasoning as one piece, then with each word of the text. If the recorded duration is
                0, the text is one piece, too.

        Raises:
            CassetteDiffers: the cassette has no such reply.
            CallboardError: the recorded request failed with this error.
        """
        agent, number = _agent_of(path), sum(isinstance(turn, AssistantTurn) for turn in request.messages)
        lines = self._replies.get(agent, ())
        if number >= len(lines):
            known = ", ".join(f"{len(found)} of {name}" for name, found in self._replies.items()) or "none"
            raise CassetteDiffers(
                f"the cassette {self._file} has no reply number {number + 1} of {agent}; it has {known}. To "
                "answer other requests, use a live model (-m NAME), or record the run again (--record)"
            )
        line = lines[number]
        if line.error is not None:
            await trio.sleep(line.seconds)
            raise line.error.restore()
        assert line.reply is not None
        reply = convert(self._localised(msgspec.to_builtins(line.reply), line, request.messages), ChatReply)
        await _streamed(reply, line.seconds, hears)
        return reply

    def _localised(self, value: Any, line: ReplyLine, turns: Sequence[Turn]) -> Any:
        """Return the reply with the child ids of this conversation and the paths of this machine."""
        recorded = [self._pieces.get(digest) for digest in line.asked.messages]
        # Not strict: this conversation may have spawned fewer children than the recorded one, or more.
        ids = dict(zip(_children(recorded), _children(map(msgspec.to_builtins, turns)), strict=False))

        def put(text: str) -> str:
            text = _CHILD.sub(lambda found: ids.get(found[0], found[0]), text)
            return re.sub(r"‹(\w+)›", lambda found: self._places.get(found[1], found[0]), text) if "‹" in text else text

        return _texts(value, put)


def _by_agent(lines: Sequence[AnyLine]) -> dict[str, list[ReplyLine]]:
    found: dict[str, list[ReplyLine]] = {}
    for line in lines:
        if isinstance(line, ReplyLine):
            found.setdefault(_CHILD.sub(r"\1", line.at), []).append(line)
    return found


def _agent_of(path: str) -> str:
    """Return the path of an actor below its run, without the digits of child ids."""
    _root, _, below = path.strip("/").partition("/")
    return _CHILD.sub(r"\1", f"/{below}")


def _children(values: Any) -> list[str]:
    """Return the distinct child ids in JSON values, sorted by name and then by appearance."""
    found: dict[str, None] = {}
    for value in values:
        for text in _strings(value):
            found.update(dict.fromkeys(match[0] for match in _CHILD.finditer(text)))
    # The sort is stable, so ids of children with the same name stay in the order of their appearance.
    return sorted(found, key=lambda child: child.rpartition("_")[0])


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)


def _texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _texts(each, change) for key, each in value.items()}
    return [_texts(each, change) for each in value] if isinstance(value, list | tuple) else value


async def _streamed(reply: ChatReply, seconds: float, hears: Callable[[Delta], object]) -> None:
    """Deliver the reply word by word, within about `seconds`."""
    if not seconds:
        await trio.lowlevel.checkpoint()
    words = _WORDS.findall(reply.text) if seconds else [reply.text] if reply.text else []
    # At most half of the recorded time is spread over the words; the rest passes before the first one.
    pace = min(_LONGEST_PIECE, seconds / 2 / len(words)) if words else 0.0
    await trio.sleep(seconds - pace * len(words))
    if reply.reasoning:
        hears(ReasoningDelta(reply.reasoning))
    for word in words:
        hears(TextDelta(word))
        await trio.sleep(pace)
