r"""Chat: a conversation to which a client sends lines, as a user types them at a prompt.

    -> _chat/open {agent: "coder"}                <- {chat: {chat: "chat-3f01", agent: "coder", ...}, notes: [...]}
    -> _chat/line {chat: "chat-3f01", line: "hello"}
       <- _chat/began {chat, run, prompt}         a run answers it; `_run/subscribe` and `_question/subscribe` show it
       <- _chat/said {chat, kind: "text", text}   output of a command
       <- _chat/ask, _chat/edit, _chat/copy       requests of a command to the client that sent the line
    <- {chat: {...}, run: "run-7f3a01bc", status: "done"}         when everything that the line began has ended

A line that begins with `.` or `/` and the name of a command is that command. A line that begins with `!` is for the
shell. Every other line is a prompt. Text between `:::` and `:::` is one line, even if it contains line breaks.

Lines are executed in the order of their arrival, each after the previous one has ended. So a client can send them as
they are typed. Commands that only show something do not wait. While a run answers, a prompt is sent to its agent,
which reads it before its next request to the model (steering). A command that would change the basis of the run is
refused.

The runs of a chat are named by `_chat/began`, and the questions of these runs belong to the chat. The user leaves
with the line `.exit`, which asks whether to store a temporary session. `_chat/close` and the end of the connection do
not ask, and cancel running work.

Like runs, a chat belongs to the hub of a process. It ends when the connection that opened it closes, unless it was
opened with `keep`. Other connections may watch it (`_chat/watch`) and send it lines. The notifications `_chat/began`
and `_chat/said` are numbered: after a lost connection, a client watches again from the last number that it received.

The end of the module splits such lines: `split_words` and `split_files` for the arguments of commands, `is_open` and
`unfenced` for `:::`. Quotes and backquotes keep blanks in a word, a backslash escapes a character:

    a 'b c' d\ e `git diff`    ->   a, b c, d e, `git diff`

A backquoted word keeps its backquotes, so `-f` and `.file` recognize it as a command. A quote without an end takes
the rest of the line, so an apostrophe in a prompt is no error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from ..kernel.questions import Question
from .method_structs import MOST, Answer, Done, Name, Nothing, Params, Path, Paths, Text, Variables

# --- the state of a chat -----------------------------------------------------------------------------------


class ChatInfo(msgspec.Struct, kw_only=True):
    """State of a chat.

    Attributes:
        chat: its id.
        model: `client:model` that answers the next prompt.
        agent, role, session, rag: names of those in use; None for none. The session `temp` has no name yet.
        role_prompt: True if the role is a text that the user entered (`.prompt`).
        session_id: id of a stored session; a chat without a session name may be reopened by it.
        turns: number of answers in its history.
        tokens: lower bound for the tokens of the next request; None until a model has answered.
        window: context window of the model; None if unknown. `percent` is the share of it that `tokens` take.
        cost: USD of all its runs, as far as prices are known; `priced`: True if all are known.
        settings: settings of `.set` that have a value, by key.
        run: the run under way.
        title: its subject.
        doing: description of other work that takes a while; None for none.
        started: time at which it was opened.
    """

    chat: str
    model: str
    agent: str | None = None
    role: str | None = None
    role_prompt: bool = False
    session: str | None = None
    session_id: str | None = None
    rag: str | None = None
    turns: int = 0
    tokens: int | None = None
    window: int | None = None
    percent: int | None = None
    cost: float = 0.0
    priced: bool = True
    settings: dict[str, str | int | float | bool | None] = {}
    run: str | None = None
    title: str | None = None
    doing: str | None = None
    started: str = ""


class Completion(msgspec.Struct, kw_only=True):
    """Completion: `text` replaces the line from `start` to the cursor; lists show it with `about`."""

    text: str
    start: int
    about: str = ""


# --- methods -----------------------------------------------------------------------------------------------


class OpenChat(Params, frozen=True):
    """Parameters of `_chat/open`.

    Attributes:
        agent, role, role_prompt, session, rag, model, variables: initial state. A session of "" is a temporary one.
        files, attach: files for its first prompt; they need the scope `run:files`.
        empty_session: remove the history of the session first.
        save_session: as the setting of that name, for this session; false does not change the session's file.
        preludes: apply `repl_prelude` if no role, session or agent is given.
        keep: continue the chat when this connection closes.
        macro: name of a macro that is executed first, with `macro_arguments`.
        default_agent: let `chat_agent` of config.yaml, else the built-in `assistant`, answer if nothing else is named.
            A session without an agent is continued without one.
        store: store the conversation even without a session, so that it may be reopened.
        reopen: id of the session of a stored chat to continue, with its agent; `last` for the newest of the server's
            working directory, `choose` to let the user choose.
    """

    agent: Name | None = None
    role: Name | None = None
    role_prompt: Text | None = None
    session: Name | None = None
    rag: Path | None = None
    model: Path | None = None
    variables: Variables = msgspec.field(default_factory=dict)
    files: Paths = msgspec.field(default_factory=list)
    attach: Paths = msgspec.field(default_factory=list)
    empty_session: bool = False
    save_session: bool | None = None
    preludes: bool = True
    keep: bool = False
    macro: Name | None = None
    macro_arguments: Annotated[list[Text], Meta(max_length=MOST)] = msgspec.field(default_factory=list)
    default_agent: bool = False
    store: bool = False
    reopen: Name | None = None


class OfChat(Params, frozen=True):
    """`_chat/get`, `_chat/close`, `_chat/interrupt`, `_chat/unwatch`."""

    chat: Name


class WatchChat(Params, frozen=True):
    """Parameters of `_chat/watch`. The answer includes the stored notifications after number `after`; without
    `after`, none.
    """

    chat: Name
    after: Annotated[int, Meta(ge=0)] | None = None


class SendLine(Params, frozen=True):
    """`_chat/line`: may hold several lines, as one prompt."""

    chat: Name
    line: Text


class Complete(Params, frozen=True):
    """`_chat/complete`: the line as far as it is typed, up to the cursor."""

    chat: Name
    line: Text


class Opened(msgspec.Struct, kw_only=True):
    """Result of `_chat/open`.

    Attributes:
        notes: notes for the user, a line each.
        said: for a session with a history, its counts, its last prompt and the answer.
        trust: True if the user has to decide about the directory's files for agents, by the line `.trust`.
    """

    chat: ChatInfo
    notes: list[str] = []
    said: list[Said] = []
    trust: bool = False


class OneChat(msgspec.Struct, kw_only=True):
    """Result of `_chat/get`."""

    chat: ChatInfo


class ChatList(msgspec.Struct, kw_only=True):
    """Result of `_chat/list`."""

    chats: list[ChatInfo]


class LineDone(msgspec.Struct, kw_only=True):
    """Result of `_chat/line`, after the line has ended.

    Attributes:
        run, status: the last run that the line has begun, and its end (`done`, `failed`, `cancelled`). `cancelled`
            without a run: the line was interrupted before its run had begun, or is an interrupted command.
        steered: True if the line was sent to the run under way.
        leave: True if the line was `.exit`: the client ends, the chat is closed.
        attach: for the line `.attach CHAT`, the chat that the client watches from now on. The previous one stays open.
    """

    chat: ChatInfo
    run: str | None = None
    status: str | None = None
    steered: bool = False
    leave: bool = False
    attach: str | None = None


class Interrupted(msgspec.Struct, kw_only=True):
    """Result of `_chat/interrupt`: True if a line was interrupted. The partial reply is stored.

    It interrupts all earlier lines that have not ended, including waiting ones. Later lines are executed when these
    have ended.
    """

    interrupted: bool


class Completions(msgspec.Struct, kw_only=True):
    """Result of `_chat/complete`."""

    items: list[Completion]


class WatchingChat(msgspec.Struct, kw_only=True):
    """Result of `_chat/watch`: from now on the connection receives the notifications of the chat.

    Attributes:
        told: earlier notifications, oldest first.
    """

    chat: ChatInfo
    told: list[Told] = []


# --- notifications -----------------------------------------------------------------------------------------


class Began(msgspec.Struct, kw_only=True):
    """Notification `_chat/began`: a run answers `prompt`; `title` names its agent, role or model.

    `seq` numbers the notifications of the chat; 0 marks one for the sender of the line only.
    """

    chat: str
    run: str
    prompt: str
    title: str = ""
    seq: int = 0


class Said(msgspec.Struct, kw_only=True):
    """Notification `_chat/said`: output of a chat command. `kind` is the form of display.

    `text` is shown as it is, `markdown` rendered, `diff` coloured as a unified diff; `note`, `warning` and `error` are
    for the user, on stderr if there is one; `echo` is a line that a macro executes; `shell` is output of a program.
    `seq` is as in `_chat/began`.

    Attributes:
        after: run that had ended before this output. Its last events may arrive later; show the text below them.
    """

    chat: str
    kind: Literal["text", "markdown", "diff", "note", "warning", "error", "echo", "shell"]
    text: str
    seq: int = 0
    after: str | None = None


class Told(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Stored notification: exactly one of the two fields is set."""

    began: Began | None = None
    said: Said | None = None


class Changed(msgspec.Struct, kw_only=True):
    """Notification `_chat/changed`: the new state of the chat."""

    chat: ChatInfo


class ChatClosed(msgspec.Struct, kw_only=True):
    """Notification `_chat/closed`: the watcher receives nothing more of the chat.

    Attributes:
        lagged: True if the watcher read too slowly; otherwise the chat has ended.
    """

    chat: str
    lagged: bool


# --- requests of the server to the client that has sent a line ---------------------------------------------


class AskPerson(msgspec.Struct, kw_only=True):
    """Request `_chat/ask` to the client: a question of a command. Questions of agents are sent as `_question/asked`.

    Attributes:
        kind: `confirm` (yes or no), `choice` (one of `options`), `checkbox` (any of them), `text`.
        about: a text for each option.
        default: meaning of the answer "", also for the server.
        secret: the answer is not echoed, and not stored in any history.
    """

    chat: str
    text: str
    kind: Literal["confirm", "choice", "checkbox", "text"] = "text"
    options: list[str] = []
    about: list[str] = []
    default: str | None = None
    secret: bool = False

    def question(self) -> Question:
        """Return this as a question of an agent, for code that shows and understands both alike."""
        return Question(
            id="",
            actor="",
            text=self.text,
            kind=self.kind,
            options=tuple(self.options),
            free=False,
            default=self.default,
            secret=self.secret,
        )


class PersonAnswered(msgspec.Struct, kw_only=True):
    """Result of `_chat/ask`: a list for a checkbox; None if the user declines to answer."""

    value: Answer | None = None


class EditText(msgspec.Struct, kw_only=True):
    """Request `_chat/edit` to the client: open the user's editor with `text`; `name` gives its suffix and title.

    `problem` is the reason why the previous text was refused.
    """

    chat: str
    name: str
    text: str
    problem: str | None = None


class Edited(msgspec.Struct, kw_only=True):
    """Result of `_chat/edit`; None if nothing was written, or there is no editor."""

    text: Text | None = None


class CopyText(msgspec.Struct, kw_only=True):
    """Request `_chat/copy` to the client: copy `text` to the user's clipboard."""

    chat: str
    text: str


METHODS: dict[str, tuple[type, type]] = {
    "_chat/open": (OpenChat, Opened),
    "_chat/list": (Nothing, ChatList),
    "_chat/get": (OfChat, OneChat),
    "_chat/line": (SendLine, LineDone),
    "_chat/interrupt": (OfChat, Interrupted),
    "_chat/complete": (Complete, Completions),
    "_chat/watch": (WatchChat, WatchingChat),
    "_chat/unwatch": (OfChat, Done),
    "_chat/close": (OfChat, Done),
}

NOTIFICATIONS: dict[str, type] = {
    "_chat/began": Began,
    "_chat/said": Said,
    "_chat/changed": Changed,
    "_chat/closed": ChatClosed,
}

REQUESTS: dict[str, tuple[type, type]] = {
    "_chat/ask": (AskPerson, PersonAnswered),
    "_chat/edit": (EditText, Edited),
    "_chat/copy": (CopyText, Done),
}
"""Requests of the server to a client."""


# --- lines, and their words -------------------------------------------------------------------------------


FENCE = ":::"
"""Mark at the beginning and the end of a text of several lines."""


def unfenced(text: str) -> str:
    """Return a text without its fences, if it has both."""
    inner = text.strip()
    if not inner.startswith(FENCE) or is_open(text):
        return text
    return inner.removeprefix(FENCE).removesuffix(FENCE).strip("\n")


def is_open(text: str) -> bool:
    """Return whether a text has an opening fence and no closing one, so that the next line belongs to it."""
    text = text.strip()
    return text.startswith(FENCE) and not text.removeprefix(FENCE).endswith(FENCE)


def split_words(line: str) -> list[str]:
    """Return the words of a line."""
    return [word for word, _, _ in _words(line)]


def split_files(line: str) -> tuple[tuple[str, ...], str]:
    """Split the arguments of `.file`: words for files, and after ` -- ` the prompt."""
    words: list[str] = []
    for word, start, end in _words(line):
        if line[start:end] == "--":
            return tuple(words), line[end:].strip()
        words.append(word)
    return tuple(words), ""


def _words(line: str) -> Iterator[tuple[str, int, int]]:
    """Yield each word without its quoting, and its position. The line is scanned only once."""
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        start, pieces = at, []
        while at < len(line) and not line[at].isspace():
            piece, at = _piece(line, at)
            pieces.append(piece)
        yield "".join(pieces), start, at


def _piece(line: str, at: int) -> tuple[str, int]:
    """Return the part of a word that begins here, and the position of the next part."""
    mark = line[at]
    if mark == "\\":
        return line[at + 1 : at + 2] or mark, at + 2
    if mark in "'`":
        end = line.find(mark, at + 1)
        end = len(line) if end < 0 else end
        inside = line[at + 1 : end]
        return (inside if mark == "'" else f"`{inside}`"), end + 1
    if mark != '"':
        return mark, at + 1
    taken: list[str] = []
    at += 1
    while at < len(line) and line[at] != '"':
        at += line[at] == "\\" and at + 1 < len(line)
        taken.append(line[at])
        at += 1
    return "".join(taken), at + 1
