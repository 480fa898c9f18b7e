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

`_meta` is Callboard's own key. Unknown keys are preserved, in the file and in its messages. The module has three parts:

**Session.** `read_session` and `write_session` convert the text of a file to a `Session` and back.

**YAML** (`read_yaml`, `write_yaml`): the core schema of YAML 1.2, in which `yes` and dates are text, as serde writes
it. Files may be edited by hand, truncated, or sent by an attacker. PyYAML's own loader recurses in C, so a line of
brackets crashes the process. A few hundred bytes of nested aliases fill the memory when they are written again.
Therefore the values are built from the parser's events, with a limit for the depth and one for the expansion of
aliases.

**Turns** (`turns_of`, `messages_of`): the messages as turns of a conversation (`chat`), and back, by Loki's rules.

    role: user       content: text, or parts: {type: text, text}, {type: image_url, image_url: {url}}
    role: assistant  content: text
    role: tool       content: {tool_results: [{call: {name, arguments, id}, output}], text, sequence}
    role: system     content: the system prompt; or, once the session was compressed, the summary

A `tool` message has the calls of a model's turn together with their results; `text` is the model's text. With
`sequence` the calls were made one after another. Callboard adds its own keys to Loki's: `error`, `signature`,
`malformed`, `thought`, and parts of type `file`. It adds `within` to messages in the user's role that were sent after
an exchange had begun.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from .chat import (
    AssistantTurn,
    Content,
    FilePart,
    ImagePart,
    Part,
    ReasoningEffort,
    TextPart,
    ThinkingBudget,
    Thought,
    ToolCall,
    ToolTurn,
    Turn,
    UserTurn,
)
from .chat import text_of as content_text
from .decoding import convert
from .errors import InvalidFile
from .messages import Todos
from .placement import Carried

Json = Any

MOST_BYTES = 64 * 1024 * 1024
"""Maximum size of a file in bytes."""


class Meta(msgspec.Struct, omit_defaults=True):
    """Owner and bookkeeping of a session.

    Attributes:
        owner: subject that made it or claimed it; None for a file of older programs.
        created_at: RFC 3339.
        created_by_key_id: id of the API key that created it.
        cost: USD of all its turns, as far as their prices are known.
        runs: the durable runs that its newest turns were, so that none is written twice.
        carries: taint labels of its messages (docs/security.md); None if unknown.
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
        InvalidFile: the text is too long or not YAML, or a key has a value of the wrong type.
    """
    if len(text) > MOST_BYTES:
        raise InvalidFile(f"{file}: a session of {len(text)} characters is too long")
    found = read_yaml(text, file)
    found = {} if found is None else found
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise InvalidFile(f"{file}: the top level is not a mapping with texts as keys")
    known = {key: value for key, value in found.items() if key in _FIELDS and not _is_gap(key, value)}
    try:
        session = convert(known, Session, strict=True)
    except msgspec.ValidationError as error:
        raise InvalidFile(f"{file} is not a session file: {error}") from None
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


DEEPEST = 100
"""Maximum nesting of mappings and lists; a conversation with the arguments of its tools stays below 20."""

MOST_ALIASED = 1_000_000
"""Maximum of values and characters in the expansions of all aliases of a file."""

_C = yaml.__with_libyaml__
_YAML = "tag:yaml.org,2002:"
_CORE = {
    # The last alternative is empty: a key without a value is null.
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(?:0|[1-9][0-9]*)|0o[0-7]+|0x[0-9a-fA-F]+",
    "float": r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}
_GUESSED = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _CORE.items()))
"""Texts that are another type when unquoted."""


def read_yaml(text: str, file: str) -> Json:
    """Return the contents of a document.

    Raises:
        InvalidFile: the text is not YAML, is nested too deep, or its aliases expand to too much.
    """
    try:
        return _Reading(file).value_of(text)
    except yaml.YAMLError as error:
        raise InvalidFile(f"{file} is no YAML: {' '.join(str(error).split())}") from None


def write_yaml(value: Json) -> str:
    """Return the text of a document, without aliases. A text replaces values nested too deep to be read again."""
    return yaml.dump(_cut(value, DEEPEST), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=120)


def _cut(value: Json, levels: int) -> Json:
    if not isinstance(value, dict | list):
        return value
    if levels == 0:
        return "[removed: nested too deeply]"
    if isinstance(value, dict):
        return {key: _cut(each, levels - 1) for key, each in value.items()}
    return [_cut(each, levels - 1) for each in value]


class _Open:
    """Mapping or list that has not ended; `key` is the key without a value."""

    def __init__(self, anchor: str | None, before: int, *, mapping: bool) -> None:
        self.value: Any = {} if mapping else []
        self.mapping = mapping
        self.anchor = anchor
        self.before = before
        self.has_key = False
        self.key: Any = None


class _Reading:
    """Reader of one document from its events."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Json, int]] = {}
        self._size = 0
        self._aliased = 0
        self._found: Json = None

    def value_of(self, text: str) -> Json:
        """Return the contents of the text."""
        documents = 0
        for event in yaml.parse(text, Loader=yaml.CSafeLoader if _C else yaml.SafeLoader):
            if isinstance(event, yaml.ScalarEvent):
                self._size += 1 + len(event.value)
                value = self._scalar(event)
                if event.anchor is not None:
                    self._anchors[event.anchor] = value, 1 + len(event.value)
                self._put(value)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._begin(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end()
            elif isinstance(event, yaml.AliasEvent):
                self._put(self._alias(event.anchor or ""))
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise InvalidFile(f"{self._file} holds more than one document")
        return self._found

    def _begin(self, event: yaml.CollectionStartEvent) -> None:
        mapping = isinstance(event, yaml.MappingStartEvent)
        self._check_tag(event.tag, "map" if mapping else "seq")
        if len(self._open) >= DEEPEST:
            raise InvalidFile(f"{self._file}: lists and mappings are nested more than {DEEPEST} levels deep")
        self._open.append(_Open(event.anchor, self._size, mapping=mapping))
        self._size += 1

    def _end(self) -> None:
        over = self._open.pop()
        if over.anchor is not None:
            self._anchors[over.anchor] = over.value, self._size - over.before
        self._put(over.value)

    def _alias(self, anchor: str) -> Json:
        if anchor not in self._anchors:
            raise InvalidFile(
                f"{self._file}: the alias *{anchor[:60]} refers to an anchor that is not defined before it"
            )
        value, size = self._anchors[anchor]
        self._size += size
        self._aliased += size
        if self._aliased > MOST_ALIASED:
            raise InvalidFile(f"{self._file}: its aliases expand to too many values")
        return value

    def _put(self, value: Json) -> None:
        if not self._open:
            self._found = value
            return
        here = self._open[-1]
        if not here.mapping:
            here.value.append(value)
        elif here.has_key:
            here.value[here.key] = value
            here.has_key = False
        elif isinstance(value, list | dict):
            raise InvalidFile(f"{self._file}: a list or a mapping can't be a key")
        else:
            here.key, here.has_key = value, True

    def _scalar(self, event: yaml.ScalarEvent) -> Json:
        text, tag = event.value, event.tag
        if tag is None and not event.implicit[0]:
            return text
        guess = _GUESSED.fullmatch(text)
        kind = "str" if guess is None or guess.lastgroup is None else guess.lastgroup
        if tag is not None and tag != "!":
            wanted = tag.removeprefix(_YAML)
            if wanted == "str":
                return text
            self._check_tag(tag, "float" if wanted == "float" and kind == "int" else kind)
            kind = wanted
        # YAML 1.2, section 6.9.1: the tag `!` makes any scalar a text.
        elif tag == "!":
            return text
        try:
            return _MADE[kind](text)
        except ValueError:  # more digits than Python converts
            raise InvalidFile(f"{self._file}: the number {text[:20]}... is too long") from None

    def _check_tag(self, tag: str | None, kind: str) -> None:
        if tag not in (None, "!", _YAML + kind) and not (kind == "int" and tag == _YAML + "float"):
            raise InvalidFile(f"{self._file}: the tag {str(tag)[:60]!r} is not supported")


def _whole(text: str) -> int:
    digits = text.lstrip("+-")
    return int(text, 8 if digits.startswith("0o") else 16 if digits.startswith("0x") else 10)


def _decimal(text: str) -> float:
    plain = text.lower()
    return float(plain.replace(".inf", "inf").replace(".nan", "nan"))


_MADE: dict[str, Any] = {
    "str": str,
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    "int": _whole,
    "float": _decimal,
}


class _Dumper(yaml.CSafeDumper if _C else yaml.SafeDumper):  # type: ignore[misc]  # one of two
    """Safe dumper that writes texts with line breaks as block scalars."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - each value is written where it stands
        return True


def _text(dumper: Any, value: str) -> yaml.ScalarNode:
    plain = value.encode("utf-8", "replace").decode()  # Half of a surrogate pair cannot be written.
    # PyYAML quotes by the rules of YAML 1.1, and writes `1e3` and `0o17` bare. By YAML 1.2 these are numbers.
    style = "|" if "\n" in plain else "'" if _GUESSED.fullmatch(plain) else None
    node: yaml.ScalarNode = dumper.represent_scalar(_YAML + "str", plain, style=style)
    return node


_Dumper.add_representer(str, _text)


Message = dict[str, Json]


def turns_of(session: Session) -> list[Turn]:
    """Return the history that the next turn of this session builds on.

    If the session has just been compressed, the last exchange before the summary is included. The system prompt of an
    uncompressed session is not a turn: see `system_of`.
    """
    messages = session.messages
    # Loki's rule. Otherwise the model would know the last exchange, which the user is about to continue, only from the
    # summary.
    if len(messages) == 1 and len(session.compressed_messages) >= 2:
        users = [index for index, each in enumerate(session.compressed_messages) if each.get("role") == "user"]
        messages = [*messages, *(session.compressed_messages[users[-1] :] if users else [])]
    if messages and messages[0].get("role") == "system" and not session.compressed_messages:
        messages = messages[1:]
    return [turn for index, message in enumerate(messages) for turn in _turns(message, index)]


def system_of(session: Session) -> str:
    """Return the system prompt in the session's messages; "" for none."""
    first = (session.compressed_messages or session.messages or [{}])[0]
    return content_text(_content(first.get("content"))) if first.get("role") == "system" else ""


def messages_of(turns: Iterable[Turn]) -> list[Message]:
    """Convert turns to messages, without calls that have no result."""
    messages: list[Message] = []
    waiting: dict[str, ToolCall] = {}
    for turn in turns:
        if isinstance(turn, UserTurn):
            messages.append({"role": "user", "content": _parts(turn.content)})
        elif isinstance(turn, AssistantTurn):
            waiting = {call.id: call for call in turn.tool_calls}
            thought = {} if turn.thought is None else {"thought": msgspec.to_builtins(turn.thought)}
            if not turn.tool_calls:
                messages.append({"role": "assistant", "content": turn.text, **thought})
            else:
                held: Message = {"tool_results": [], "text": turn.text, "sequence": False, **thought}
                messages.append({"role": "tool", "content": held})
        elif (call := waiting.pop(turn.call, None)) is not None:
            messages[-1]["content"]["tool_results"].append(_result(call, turn))
    return [each for each in messages if each["role"] != "tool" or each["content"]["tool_results"]]


def _result(call: ToolCall, turn: ToolTurn) -> Message:
    told: Message = {"name": call.name, "arguments": call.arguments, "id": call.id}
    told |= {key: value for key in ("signature", "malformed") if (value := getattr(call, key))}
    result: Message = {"call": told, "output": _parts(turn.content)}
    return {**result, "error": True} if turn.error else result


def _parts(content: Content) -> Json:
    if isinstance(content, str):
        return content
    return [_part(part) for part in content]


def _part(part: Part) -> Message:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    data = base64.b64encode(part.data).decode()
    if isinstance(part, ImagePart):
        return {"type": "image_url", "image_url": {"url": part.url or f"data:{part.media_type};base64,{data}"}}
    return {"type": "file", "name": part.name, "media_type": part.media_type, "data": data}


def _turns(message: Message, index: int) -> Iterator[Turn]:
    role, content = message.get("role"), message.get("content")
    if role == "tool" and isinstance(content, dict):
        yield from _calls(content, index)
    elif role == "assistant":
        yield AssistantTurn(content_text(_content(content)), thought=_thought(message.get("thought")))
    elif role in ("user", "system"):
        yield UserTurn(_content(content))


def _calls(content: Message, index: int) -> Iterator[Turn]:
    told = content.get("tool_results")
    results = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
    calls = [_call(each.get("call"), f"call_{index}_{place}") for place, each in enumerate(results)]
    # `sequence`: Loki writes calls of several model replies into one message; each gets a turn of its own again.
    groups = [[place] for place in range(len(calls))] if content.get("sequence") else [list(range(len(calls)))]
    text = str(content.get("text") or "")
    thought = _thought(content.get("thought"))
    for group in groups:
        if group:
            yield AssistantTurn(text, tuple(calls[place] for place in group), thought)
        # Text and reasoning belong to the first reply only.
        text, thought = "", None
        for place in group:
            call, result = calls[place], results[place]
            yield ToolTurn(call.id, call.name, _content(result.get("output")), bool(result.get("error")))


def _thought(told: Json) -> Thought | None:
    """Return the model's reasoning item; None without one, or if it is invalid because the file was edited by hand."""
    try:
        return None if told is None else convert(told, Thought)
    except msgspec.ValidationError:
        return None


def _call(told: Json, id: str) -> ToolCall:
    told = told if isinstance(told, dict) else {}
    arguments = told.get("arguments")
    return ToolCall(
        id=str(told.get("id") or id),
        name=str(told.get("name") or ""),
        arguments=arguments if isinstance(arguments, dict) else {},
        malformed=str(told.get("malformed") or ""),
        signature=str(told.get("signature") or ""),
    )


def _content(told: Json) -> Content:
    if isinstance(told, str):
        return told
    if isinstance(told, list):
        # All or nothing: with an unknown part the list is given as JSON text, so that nothing of it is lost.
        parts = tuple(part for part in map(_read_part, told) if part is not None)
        if len(parts) == len(told):
            return parts
    if told is None:
        return ""
    import json

    return json.dumps(told, ensure_ascii=False, default=str)


def _read_part(told: Json) -> Part | None:
    if not isinstance(told, dict):
        return None
    if told.get("type") == "text":
        return TextPart(str(told.get("text") or ""))
    if told.get("type") == "image_url" and isinstance(told.get("image_url"), dict):
        return _image(str(told["image_url"].get("url") or ""))
    if told.get("type") == "file":
        return FilePart(str(told.get("name")), _bytes(told.get("data")), str(told.get("media_type") or "text/plain"))
    return None


def _image(url: str) -> ImagePart:
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return ImagePart(media_type=head[5:-7], data=_bytes(data))
    return ImagePart(url=url)


def _bytes(text: Json) -> bytes:
    try:
        return base64.b64decode(str(text or ""), validate=True)
    except (binascii.Error, ValueError):
        return b""


def same_but_for_results(old: Sequence[Turn], new: Sequence[Turn]) -> bool:
    """Return whether `new` continues the conversation `old`, with changes of results at most."""
    return len(new) >= len(old) and all(one is two or _one_call(one, two) for one, two in zip(old, new, strict=False))


def with_results(messages: Sequence[Message], results: Mapping[str, Content]) -> list[Message]:
    """Return the messages with the results of these calls (by id) replaced."""
    return [_with_results(message, results) if results else message for message in messages]


def _with_results(message: Message, results: Mapping[str, Content]) -> Message:
    content = message.get("content")
    if message.get("role") != "tool" or not isinstance(content, dict):
        return message
    held = content.get("tool_results")
    if not isinstance(held, list):
        return message
    changed = [_with_result(each, results) if isinstance(each, dict) else each for each in held]
    return {**message, "content": {**content, "tool_results": changed}}


def _with_result(result: Message, results: Mapping[str, Content]) -> Message:
    call = result.get("call")
    id = call.get("id") if isinstance(call, dict) else None
    return {**result, "output": _parts(results[id])} if isinstance(id, str) and id in results else result


def _one_call(one: Turn, two: Turn) -> bool:
    return isinstance(one, ToolTurn) and isinstance(two, ToolTurn) and one.call == two.call
