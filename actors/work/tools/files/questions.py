"""Questions of tools to the user, over an inherited socket instead of a terminal.

A tool has no terminal, and its stdin is empty. Its runner, `prompt-utils.sh`, or any child process that knows this
protocol writes a question to the descriptor in `CALLBOARD_ASK_FD` and reads the answer from it:

    question   <number of fields> NUL <field> NUL ...        each field is `name=value`
    answer     ok NUL <number of values> NUL <value> NUL ... or   no NUL 1 NUL <why> NUL

Every word is text that ends with a NUL, so pure bash can speak the protocol. Fields: `text`, `kind` (of `Question`),
`option` (any number), `default`, `secret=1`, `guard=1` (only people may answer), `free=0`, `timeout` (seconds), `node`
(the node that asks). An answer to `checkbox` has one value per chosen option, every other answer one value. The answer
to `confirm` is `yes` or `no`.

Each question becomes `me.ask_person` on the call's own actor, and the call's clock is stopped until the answer.
Questions of one tool are asked one at a time. A tool that breaks the protocol gets `no`, and its socket is closed.
"""

from __future__ import annotations

import contextlib
import re
import socket
from typing import TYPE_CHECKING, Literal, Self, cast, get_args

import msgspec
import trio

from .....protocol.errors import NobodyToAsk, Saturated, ShuttingDown
from .....protocol.kernel.questions import Question, QuestionKind, yes_or_no
from .....supervisors.escalation import QuestionTimeout
from .call_file import out_of_the_way

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ...call_clock import Clock

LONGEST = 256 * 1024
"""Maximum bytes of one question with all its options."""

MOST_FIELDS = 1000

TRIES = 5
"""Maximum attempts at a question whose answers do not fit; the answering client may be a program."""


class NotUnderstood(Exception):
    """A message on the socket that is not a valid question."""


class AskSocket:
    """Socket pair of one call: one end for the tool, one for this process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._theirs = socket.socket(fileno=out_of_the_way(theirs.detach()))
        self._ours = trio.socket.from_stdlib_socket(ours)
        self._stream = trio.SocketStream(self._ours)
        self._buffer = bytearray()
        self._room = LONGEST

    @property
    def theirs(self) -> int:
        """Descriptor number that the tool inherits."""
        return self._theirs.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.handed_over()
        self._ours.close()

    def handed_over(self) -> None:
        """Close this process's copy of the tool's end after the tool inherited it.

        Otherwise the end of file would never arrive.
        """
        self._theirs.close()

    async def serve(self, me: Actor, clock: Clock, tool: str) -> None:
        """Send `go`, then answer questions on behalf of `me` until the tool closes its socket."""
        await self._send(["go"])
        try:
            while fields := await self._receive():
                with clock.stopped():
                    status, values = await answer_to(me, fields, tool)
                await self._send([status, str(len(values)), *values])
        except NotUnderstood as error:
            # After a protocol error the position in the stream is unknown, so the socket is closed.
            await self._send(["no", "1", str(error)])
            await self._stream.aclose()

    async def _send(self, words: list[str]) -> None:
        data = b"".join(word.replace("\0", "").encode("utf-8", "replace") + b"\0" for word in words)
        # Ignore a tool that exited before it read its answer: the process supervisor handles its end.
        with contextlib.suppress(trio.BrokenResourceError):
            await self._stream.send_all(data)

    async def _receive(self) -> list[str]:
        self._room = LONGEST
        first = await self._word()
        if first is None:
            return []
        if not re.fullmatch(r"[0-9]{1,4}", first) or not 0 < int(first) <= MOST_FIELDS:
            raise NotUnderstood(f"a question begins with the number of its fields, not with {first[:40]!r}")
        words = [await self._word() for _ in range(int(first))]
        # The tool closed the socket in the middle of a question: treat it as the end.
        return [word for word in words if word is not None] if None not in words else []

    async def _word(self) -> str | None:
        looked = 0
        while (end := self._buffer.find(b"\0", looked)) < 0:
            looked = len(self._buffer)
            if looked > self._room:
                raise NotUnderstood(f"a question may have {LONGEST // 1024} KiB")
            try:
                data = await self._stream.receive_some()
            except trio.BrokenResourceError:
                data = b""
            if not data:
                return None
            self._buffer += data
        word = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._room -= end + 1
        return word.decode("utf-8", "replace")


Status = Literal["ok", "no"]


async def answer_to(me: Actor, fields: list[str], tool: str) -> tuple[Status, list[str]]:
    """Ask the user on behalf of `me`. Return `ok` with the values of the answer, or `no` with the reason.

    Raises:
        NotUnderstood: the fields form no valid question.
    """
    question = _question(fields, tool)
    try:
        for _ in range(TRIES):
            values, problem = _check(question, (await me.ask_person(question)).value)
            if not problem:
                return "ok", values
            question = msgspec.structs.replace(question, problem=problem)
        return "no", [f"no usable answer: {question.problem}"]
    except (NobodyToAsk, QuestionTimeout, Saturated) as error:
        return "no", [str(error)]
    except ShuttingDown:
        return "no", ["the run is being stopped"]


def _question(fields: list[str], tool: str) -> Question:
    one: dict[str, str] = {}
    options: list[str] = []
    for field in fields:
        name, found, value = field.partition("=")
        if not found:
            raise NotUnderstood(f"a field of a question is name=value, not {field[:40]!r}")
        if name == "option":
            options.append(value)
        else:
            one[name] = value
    kind = one.get("kind", "text")
    if kind not in get_args(QuestionKind):
        raise NotUnderstood(f"a question's kind is one of {', '.join(get_args(QuestionKind))}, not {kind[:40]!r}")
    if kind in ("choice", "checkbox") and not options:
        raise NotUnderstood(f"a question of the kind {kind} needs options")
    return Question(
        id="",
        actor="",
        text=one.get("text") or f"The tool '{tool}' waits for a line of input.",
        kind=cast("QuestionKind", kind),
        options=tuple(options),
        free=kind == "text" or (kind == "choice" and one.get("free") == "1"),
        default=one.get("default"),
        timeout=_seconds(one.get("timeout", "")),
        secret=one.get("secret") == "1",
        people=one.get("guard") == "1",
        node=one.get("node"),
    )


def _seconds(text: str) -> float | None:
    try:
        return max(float(text), 0.0) if text else None
    except ValueError as error:
        raise NotUnderstood(f"a question's timeout is a number of seconds, not {text[:40]!r}") from error


def _check(question: Question, given: str | list[str]) -> tuple[list[str], str]:
    values = [given] if isinstance(given, str) else list(given)
    if question.kind == "confirm":
        said = yes_or_no(values[0]) if values else None
        return ([], "answer yes or no") if said is None else ([said], "")
    if question.kind != "checkbox":
        values = values[:1] or [""]
    if question.options and not question.free:
        strange = [value for value in values if value not in question.options]
        if strange:
            return [], f"{strange[0]!r} is not among the options"
    return values, ""
