"""A session's file, `state.yaml`: what a conversation needs to go on another day. The keys are Loki's.

    _meta: {owner: alice, created_at: '2026-11-03T10:00:00Z'}
    model: openai:gpt-4o-mini
    save_session: true
    agent_variables: {topic: bridges}
    messages:
    - role: user
      content: What holds a bridge up?
    - role: assistant
      content: Tension and compression.

`_meta` is ours. Unknown keys stay as they are, in the file and in its messages. `session_yaml` reads and
writes the text; `session_turns` makes a history of the messages.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from .chat import ReasoningEffort, ThinkingBudget
from .decoding import convert
from .errors import InvalidFile
from .messages import Todos
from .session_yaml import read_yaml, write_yaml

Json = Any

MOST_BYTES = 64 * 1024 * 1024
"""A file that is longer is no conversation."""


class Meta(msgspec.Struct, omit_defaults=True):
    """Whose session it is.

    Attributes:
        owner: subject that made it or claimed it; None for a file of older programs.
        created_at: RFC 3339.
        created_by_key_id: the key its owner came with.
        cost: USD of all its turns, as far as their prices are known.
        runs: the durable runs that its newest turns were, so that none is written twice.
    """

    owner: str | None = None
    created_at: str | None = None
    created_by_key_id: str | None = None
    cost: float = 0.0
    runs: list[str] = []


class Session(msgspec.Struct, kw_only=True):
    """What the file says.

    Attributes:
        model: `client:model` that was chosen for it; None for what its agent says.
        enabled_tools, enabled_mcp_servers: of one without an agent: names with commas between them.
        auto_continue, max_auto_continues, inject_todo_instructions, continuation_prompt: of one without an agent.
        save_session: true keeps it without asking, false never, None asks.
        compression_threshold: tokens from which on it is shortened; 0 or less for never.
        role_name: the role in which the model answers, of one without an agent; with its arguments.
        agent_instructions: kept for Loki; nothing here reads it.
        agent_variables: values of the agent's variables.
        compressed_messages: what was said before the summary that `messages` begin with.
        messages: what the next turn builds on.
        title: what it is about, in a few words.
        todo: the todo list of its agent.
        meta: whose it is.
        other: unknown keys.
    """

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: ReasoningEffort | None = None
    thinking_budget: ThinkingBudget | None = None
    enabled_tools: str | None = None
    enabled_mcp_servers: str | None = None
    save_session: bool | None = None
    compression_threshold: int | None = None
    auto_continue: bool | None = None
    max_auto_continues: int | None = None
    inject_todo_instructions: bool | None = None
    continuation_prompt: str | None = None
    role_name: str | None = None
    agent_variables: dict[str, str] = {}
    agent_instructions: str | None = None
    title: str | None = None
    todo: Todos | None = None
    compressed_messages: list[dict[str, Json]] = []
    messages: list[dict[str, Json]] = []
    data_urls: dict[str, str] = {}
    meta: Meta = msgspec.field(default_factory=Meta, name="_meta")
    other: dict[str, Json] = {}


_LONG = ("compressed_messages", "messages")
"""Written last, so that a list of sessions need not read them."""

_LONG_KEY = re.compile(rf"^(?:{'|'.join(_LONG)}):", re.MULTILINE)
_FIELDS = {field.encode_name: field for field in msgspec.structs.fields(Session) if field.name != "other"}


def read_session(text: str, file: str) -> Session:
    """The session that a file holds.

    Raises:
        InvalidFile: it is no YAML, or a key holds something else than it should.
    """
    if len(text) > MOST_BYTES:
        raise InvalidFile(f"{file}: a session of {len(text)} characters is too long")
    found = read_yaml(text, file)
    found = {} if found is None else found
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise InvalidFile(f"{file}: a session is a mapping with text for keys")
    known = {key: value for key, value in found.items() if key in _FIELDS and not _is_gap(key, value)}
    try:
        session = convert(known, Session, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidFile(f"{file} is no session: {error}") from None
    session.other = {key: value for key, value in found.items() if key not in _FIELDS}
    return session


def _is_gap(key: str, value: object) -> bool:
    """`agent_variables:` with nothing behind it means none, as in Loki's files."""
    return value is None and _FIELDS[key].default_factory is not msgspec.NODEFAULT


def write_session(session: Session) -> str:
    """The text of the file; keys that say nothing are left out."""
    told: dict[str, Json] = {"_meta": meta} if (meta := msgspec.to_builtins(session.meta)) else {}
    said = {key: getattr(session, key) for key in _FIELDS if key != "_meta" and key not in _LONG}
    told |= {key: msgspec.to_builtins(value) for key, value in said.items() if value not in (None, {}, [])}
    told |= session.other
    told |= {key: getattr(session, key) for key in _LONG if getattr(session, key) or key == "messages"}
    return write_yaml(told)


def head_of(text: str) -> str:
    """The text of the file without what was said, if it was written here: all that a list of sessions shows."""
    found = _LONG_KEY.search(text)
    return text if found is None else text[: found.start()]
