"""Session file, `state.yaml`: the state from which a conversation can be continued later. The keys are Loki's.

    _meta: {owner: alice, created_at: '2026-11-03T10:00:00Z'}
    model: openai:gpt-4o-mini
    save_session: true
    agent_variables: {topic: bridges}
    messages:
    - role: user
      content: What holds a bridge up?
    - role: assistant
      content: Tension and compression.

`_meta` is Callboard's own key. Unknown keys are preserved, in the file and in its messages. `session_yaml` reads and
writes the text; `session_turns` converts the messages to a history.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from .chat import ReasoningEffort, ThinkingBudget
from .decoding import convert
from .errors import InvalidFile
from .messages import Todos
from .place import Carried
from .session_yaml import read_yaml, write_yaml

Json = Any

MOST_BYTES = 64 * 1024 * 1024
"""Maximum size of a file in bytes."""


class Meta(msgspec.Struct, omit_defaults=True):
    """Owner and bookkeeping of a session.

    Attributes:
        owner: subject that made it or claimed it; None for a file of older programs.
        created_at: RFC 3339.
        created_by_key_id: the key its owner came with.
        cost: USD of all its turns, as far as their prices are known.
        runs: the durable runs that its newest turns were, so that none is written twice.
        carries: the labels of all that was said (docs/security.md); None if that is not known.
    """

    owner: str | None = None
    created_at: str | None = None
    created_by_key_id: str | None = None
    cost: float = 0.0
    runs: list[str] = []
    carries: Carried | None = None


class Session(msgspec.Struct, kw_only=True):
    """Contents of a session file.

    Attributes:
        model: `client:model` chosen for it; None for that of its agent.
        enabled_tools, enabled_mcp_servers: without an agent: names separated by commas.
        auto_continue, max_auto_continues, inject_todo_instructions, continuation_prompt: without an agent.
        save_session: True to store it without asking, False for never, None to ask.
        compression_threshold: number of tokens above which it is compressed; 0 or less for never.
        role_name: without an agent: role in which the model answers, with its arguments.
        agent_instructions: preserved for Loki; not used here.
        agent_variables: values of the agent's variables.
        compressed_messages: messages before the summary that `messages` begin with.
        messages: messages that the next turn builds on.
        title: subject in a few words.
        todo: todo list of its agent.
        meta: owner and origin.
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

# Only at the beginning of a line: our writer indents every line of a text, so that a message cannot contain a match.
_LONG_KEY = re.compile(rf"^(?:{'|'.join(_LONG)}):", re.MULTILINE)
_FIELDS = {field.encode_name: field for field in msgspec.structs.fields(Session) if field.name != "other"}


def read_session(text: str, file: str) -> Session:
    """Return the session in a file.

    Raises:
        InvalidFile: the text is not YAML, or a key has a value of the wrong type.
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
    """Return whether a key without a value means its default: `agent_variables:`, as in Loki's files."""
    return value is None and _FIELDS[key].default_factory is not msgspec.NODEFAULT


def write_session(session: Session) -> str:
    """Return the text of the file, without empty keys."""
    # Empty if the session has no owner and no cost (`omit_defaults`): then the file has no key that Loki does not know.
    told: dict[str, Json] = {"_meta": meta} if (meta := msgspec.to_builtins(session.meta)) else {}
    said = {key: getattr(session, key) for key in _FIELDS if key != "_meta" and key not in _LONG}
    told |= {key: msgspec.to_builtins(value) for key, value in said.items() if value not in (None, {}, [])}
    told |= session.other
    told |= {key: getattr(session, key) for key in _LONG if getattr(session, key) or key == "messages"}
    return write_yaml(told)


def head_of(text: str) -> str:
    """Return the text before the messages, which has everything that lists show. Files of other programs are returned
    whole.
    """
    found = _LONG_KEY.search(text)
    return text if found is None else text[: found.start()]
