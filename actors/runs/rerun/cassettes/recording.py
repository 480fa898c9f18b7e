"""Recording of a run: it executes normally, and its external results are written into a cassette at its end."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import trio

from .....protocol.cassette import VERSION as FORMAT
from .....protocol.cassette import (
    AnswerLine,
    AnyLine,
    CassetteEnd,
    DoneLine,
    Head,
    Piece,
    ReplyLine,
    ValueLine,
    WindowLine,
    hash_of,
)
from .....protocol.chat import ChatReply, ChatRequest
from .....protocol.decoding import convert
from .....protocol.errors import CallboardError, UsageError
from .....protocol.messages import Failure
from .....protocol.version import VERSION
from .....supervisors.escalation import PASS, Verdict
from ....io.secret_redaction import Redactor, secrets_of
from ....io.tenancy import environ
from ....work.playback import Asking, Beginning, OutsideEffect
from .content import CallIds, NamedPaths, as_json, content_of

if TYPE_CHECKING:
    from .....protocol.kernel.questions import Answer, Question
    from .....protocol.settings import Settings
    from .....supervisors import Actor

T = TypeVar("T")

TOKEN = "token"  # noqa: S105 - the name of a value


class CassetteRecording:
    """Playback that records a run.

    Args:
        file: path of the cassette. An existing file is replaced when the recording is complete.
    """

    asks_the_world = True
    model = ""
    broken: CallboardError | None = None
    unused = ""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lines: list[tuple[str, Any]] = []
        self._counts: dict[tuple[str, str], int] = {}
        self._windows: set[str] = set()
        self._beginning: Beginning | None = None
        self._runs: list[str] = []  # the run of a case, and the runs of its judges
        self._status = ""
        self._top = ""

    def begins(self, actor: Actor, beginning: Beginning) -> None:
        self._top = actor.path
        self._beginning = self._beginning or beginning
        self._runs.append(beginning.run)

    async def chat(
        self, me: Actor, request: ChatRequest, asking: Asking, live: Callable[[], Awaitable[ChatReply]]
    ) -> ChatReply:
        """Ask the model, and record its reply."""
        del asking
        began, at = trio.current_time(), self._at(me)
        try:
            reply = await live()
        except CallboardError as error:
            self._lines.append(("reply", (at, request, None, Failure.of(error), round(trio.current_time() - began, 3))))
            raise
        # The request itself, not its JSON: paths and ids can be replaced only at the end, when all are known.
        self._lines.append(("reply", (at, request, reply, None, round(trio.current_time() - began, 3))))
        return reply

    async def done(self, me: Actor, effect: OutsideEffect, kind: type[T], live: Callable[[], Awaitable[T]]) -> T:
        """Perform the effect, and record its result, or its failure, which is raised again."""
        del kind
        began, at = trio.current_time(), self._at(me)
        line = partial(DoneLine, at=at, kind=effect.kind, name=effect.name)
        given = as_json(effect.request)
        try:
            value = await live()
        except CallboardError as error:
            seconds = round(trio.current_time() - began, 3)
            self._lines.append(("line", line(request="", given=given, error=Failure.of(error), seconds=seconds)))
            raise
        seconds = round(trio.current_time() - began, 3)
        self._lines.append(("line", line(request="", given=given, value=as_json(value), seconds=seconds)))
        return value

    async def in_turn(self, me: Actor) -> None:
        """Return at once: a recording imposes no order."""

    def value(self, me: Actor | None, name: str, kind: type[T], find: Callable[[], T]) -> T:
        """Compute and record a value. Ids are computed from their position in the run, and not recorded."""
        at = "" if me is None else self._at(me)
        if name == TOKEN:
            number = self._counts[at, name] = self._counts.get((at, name), 0) + 1
            return convert(recorded_token(at, number), kind)
        found = find()
        self._lines.append(("line", ValueLine(at=at, name=name, value=msgspec.to_builtins(found))))
        return found

    def window(self, model: str, find: Callable[[], int | None]) -> int | None:
        """Look up a model's window, and record it once."""
        found = find()
        if model not in self._windows:
            self._windows.add(model)
            self._lines.append(("line", WindowLine(model=model, tokens=found)))
        return found

    def policy(self, question: Question) -> Verdict:
        """Return `PASS`: users and parent agents answer, as without a recording."""
        del question
        return PASS

    def answered(self, actor: Actor, question: Question, answer: Answer) -> None:
        """Record an answer, unless it is a secret."""
        # Passwords must not reach a file that is committed with the tests.
        if not question.secret:
            by = answer.by.removeprefix(self._top) if answer.by.startswith(f"{self._top}/") else answer.by
            line = AnswerLine(at=self._at(actor), question=question.text, value=answer.value, by=by)
            self._lines.append(("line", line))

    def unanswered(self, actor: Actor, question: Question, reason: str) -> None:
        """Record a question that was closed without an answer."""
        self._lines.append(("line", AnswerLine(at=self._at(actor), question=question.text, reason=reason)))

    async def over(self, status: str, settings: Settings) -> None:
        """Write the cassette, unless the run was cancelled.

        Raises:
            UsageError: the file cannot be written.
        """
        # A cancelled run has results for a part of its requests; replaying it would end with a difference.
        if status == "cancelled" or self._beginning is None:
            return
        self._status = self._status or status
        redactor = Redactor(secrets_of(settings, environ()))
        await trio.to_thread.run_sync(self._write, self._status, self._beginning, redactor)

    def _at(self, me: Actor) -> str:
        return me.path.removeprefix(self._top)

    def _write(self, status: str, beginning: Beginning, redactor: Redactor) -> None:
        paths = named_paths_of(beginning, environ())
        for run in self._runs:
            paths.add_word("run", run)
        head = Head(
            version=FORMAT,
            callboard=VERSION,
            recorded=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            target=paths.named(beginning.target),
            prompt=paths.named(beginning.prompt),
            model=beginning.model,
        )
        lines = [head, *_final(self._lines, paths), CassetteEnd(status=status)]
        # Redacted last: paths and ids have been replaced, so a secret inside of one is found as well.
        data = b"".join(redactor.data(msgspec.json.encode(line)) + b"\n" for line in lines)
        file = self._file
        # A recording that fails must not destroy the cassette that it should replace.
        part = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(data)
            part.replace(file)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise UsageError(f"the cassette {file} can't be written: {error.strerror or error}") from error


def named_paths_of(beginning: Beginning, environ: Mapping[str, str]) -> NamedPaths:
    """Return the named paths of a run."""
    paths = NamedPaths(environ, beginning.cwd, beginning.config_dir)
    if beginning.directory is not None:
        paths.add("agent", beginning.directory)
    paths.add_word("run", beginning.run)
    return paths


def recorded_token(at: str, number: int) -> str:
    """Return eight hex digits for the n-th id at this position of the run."""
    return hashlib.blake2b(f"{at} {number}".encode(), digest_size=4).hexdigest()


def _final(recorded: list[tuple[str, Any]], paths: NamedPaths) -> list[AnyLine]:
    """Return the lines of the file: pieces once, named paths, counted ids of calls."""
    ids, known, lines = CallIds(), set[str](), list[AnyLine]()
    for kind, what in recorded:
        if kind == "line":
            lines.append(_named(what, paths))
            continue
        at, request, reply, error, seconds = what
        content = content_of(request, paths, ids)
        for digest, value in content.pieces.items():
            if digest not in known:
                known.add(digest)
                lines.append(Piece(hash=digest, value=value))
        lines.append(
            ReplyLine(
                at=at,
                request=content.hash,
                asked=content.asked,
                reply=None if reply is None else _reply(ids.in_reply(reply), paths),
                error=None if error is None else convert(paths.named(_plain(error)), Failure),
                seconds=seconds,
            )
        )
    return lines


def _named(line: AnyLine, paths: NamedPaths) -> AnyLine:
    value = paths.named(_plain(line))
    if isinstance(line, DoneLine):
        value["request"] = hash_of(value.get("given"))
    value.pop("line", None)
    return convert(value, type(line))


def _reply(reply: ChatReply, paths: NamedPaths) -> ChatReply:
    return convert(paths.named(msgspec.to_builtins(reply)), ChatReply)


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=repr, str_keys=True)
