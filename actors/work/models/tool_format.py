"""Tool declarations and tool call ids in the form that every provider accepts.

**Schemas.** Schemas of MCP servers follow any draft of JSON Schema. A provider that refuses one schema refuses the
whole request, and so every request of that agent. Anthropic and OpenAI accept no `anyOf`, `oneOf` or `allOf` at the
root, and OpenAI no array without `items`. Both check against JSON Schema 2020-12, where `items` is not a list and
`exclusiveMinimum` not a boolean. So the declared schema is equal to the server's or looser. Calls are checked against
the server's own schema (`tools.checking`), and by the server.

**Call ids.** A conversation may change its model. Its calls have the ids of the provider that produced them, or ids of
callboard if a provider has none. Other providers refuse a whole request because of such an id. Anthropic and Bedrock
accept only letters, digits, `_` and `-`, and each id once in a request. OpenAI accepts at most 40 characters. Mistral,
and servers with its tokenizer, require exactly nine letters and digits.

The stored history is not changed. Each request maps the ids one to one by a hash. So the same history produces the same
request again, and the provider's prompt cache remains valid.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from ....protocol.chat import AssistantTurn, Tool, ToolTurn, Turn

Json = Any

_COMBINATORS = ("allOf", "anyOf", "oneOf")

_SCHEMAS = frozenset(("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"))
_LISTS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_MAPS = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_DEEPEST = 60
"""Levels that are adapted; deeper parts are sent unchanged."""

_TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))

_KNOWN: dict[int, tuple[dict[str, Json], dict[str, Json]]] = {}
"""Cache by `id` of the schema. The value includes the schema itself, so that its id is not reused."""
_MOST_KNOWN = 4096


def function_of(tool: Tool) -> Json:
    """Return the declaration of a tool in OpenAI's format, which most providers use."""
    function = {"name": tool.name, "description": tool.description, "parameters": declared(tool.parameters)}
    return {"type": "function", "function": function}


def declared(schema: dict[str, Json]) -> dict[str, Json]:
    """Return the schema of a tool's arguments in a form that every provider accepts.

    The result is cached: the same object for the same object. It must not be modified.
    """
    known = _KNOWN.get(id(schema))
    if known is None or known[0] is not schema:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        known = _KNOWN[id(schema)] = (schema, _adapted(folded(schema), 0))
    return known[1]


def folded(schema: dict[str, Json]) -> dict[str, Json]:
    """Return the schema without combinators at its root: the properties of all branches become its own.

    A property is required if the root, any part of `allOf`, or every branch of another combinator requires it. A root
    that refers to one of its parts becomes that part.
    """
    if isinstance(schema.get("$ref"), str) and isinstance(part := _resolved(schema, schema), dict):
        own = {key: value for key, value in schema.items() if key != "$ref" and value}
        if part is not schema and "$ref" not in part:
            schema = {
                **part,
                **own,
                "properties": {**_object(part.get("properties")), **_object(own.get("properties"))},
            }
    if not any(isinstance(schema.get(key), list) for key in _COMBINATORS):
        return schema
    properties: dict[str, Json] = dict(_object(schema.get("properties")))
    required = list(_names(schema.get("required")))
    for key in _COMBINATORS:
        branches = schema.get(key)
        if not isinstance(branches, list):
            continue
        parts = [folded(part) for part in (_resolved(branch, schema) for branch in branches) if isinstance(part, dict)]
        for part in parts:
            for name, each in _object(part.get("properties")).items():
                properties.setdefault(name, each)
        wanted = [_names(part.get("required")) for part in parts]
        if key == "allOf":
            required += [name for names in wanted for name in names]
        elif wanted:
            required += [name for name in wanted[0] if all(name in names for names in wanted)]
    merged = {key: value for key, value in schema.items() if key not in _COMBINATORS}
    merged |= {"type": "object", "properties": properties}
    return {**merged, "required": list(dict.fromkeys(required))} if required else merged


def _adapted(schema: Json, depth: int) -> Json:
    """Return a schema and its parts in the form of JSON Schema 2020-12, with `items` for every array."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return schema
    found: dict[str, Json] = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            found[key] = {name: _adapted(each, depth + 1) for name, each in value.items()}
        elif key in _LISTS and isinstance(value, list):
            found[key] = [_adapted(each, depth + 1) for each in value]
        elif key in _SCHEMAS and isinstance(value, dict):
            found[key] = _adapted(value, depth + 1)
        elif value is not None or key in ("const", "default"):
            found[key] = value
    _mend(found, depth)
    return found


def _mend(schema: dict[str, Json], depth: int) -> None:
    if isinstance(schema.get("items"), list):  # a tuple, up to draft 2019-09
        schema["prefixItems"] = [_adapted(each, depth + 1) for each in schema["items"]]
        schema["items"] = schema.pop("additionalItems", {})
    for exclusive, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(exclusive), bool):  # draft 4
            bound = schema.get(plain)
            if schema.pop(exclusive) and bound is not None:
                schema[exclusive] = schema.pop(plain)
    if not isinstance(schema.get("required", []), list):  # draft 3, for one property
        del schema["required"]
    kinds = schema.get("type")
    if isinstance(kinds, str) and kinds not in _TYPES:  # "any" and the like
        del schema["type"]
    is_array = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
    if is_array and not isinstance(schema.get("items"), dict | bool):
        schema["items"] = {}


def _resolved(schema: Json, root: dict[str, Json]) -> Json:
    """Return the schema that a reference within `root` names, or `schema` itself if it is not a reference."""
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found: Json = root
    for key in reference[2:].split("/"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if found is not root else None


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _names(value: Json) -> list[str]:
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


# --- call ids


MOST_OF_ID = 40
"""Maximum length of an id that every provider accepts, except Mistral."""

_FITS = re.compile(rf"(?:[A-Za-z0-9_-]{{1,{MOST_OF_ID}}}\n)*")
_FITS_MISTRAL = re.compile(r"(?:[A-Za-z0-9]{9}\n)*")
_MISTRAL = re.compile(r"mi[sx]tral|ministral|pixtral|codestral|devstral|magistral", re.IGNORECASE)


def uses_mistral_ids(model: str, base: str = "") -> bool:
    """Return True for a model with Mistral's tokenizer, at any server."""
    return _MISTRAL.search(model) is not None or "mistral.ai" in base


def with_valid_ids(turns: Sequence[Turn], *, mistral: bool = False) -> Sequence[Turn]:
    """Return the turns with valid, unique ids; the same object if they are valid already.

    Results are matched to calls by their order: several calls with the same id in a turn take the results in turn.
    """
    ids = [call.id for turn in turns if type(turn) is AssistantTurn for call in turn.tool_calls]
    if not ids:
        return turns
    pattern = _FITS_MISTRAL if mistral else _FITS
    if len(set(ids)) == len(ids) and pattern.fullmatch("\n".join(ids) + "\n"):
        return turns
    taken: set[str] = set()
    waiting: dict[str, deque[str]] = {}
    found: list[Turn] = []
    for turn in turns:
        if isinstance(turn, AssistantTurn) and turn.tool_calls:
            waiting = {}
            calls = []
            for call in turn.tool_calls:
                new = _new(call.id, pattern, taken, mistral)
                taken.add(new)
                waiting.setdefault(call.id, deque()).append(new)
                calls.append(call if new == call.id else msgspec.structs.replace(call, id=new))
            found.append(msgspec.structs.replace(turn, tool_calls=tuple(calls)))
        elif isinstance(turn, ToolTurn) and (queue := waiting.get(turn.call)):
            new = queue.popleft() if len(queue) > 1 else queue[0]  # further results belong to the last call
            found.append(msgspec.structs.replace(turn, call=new))
        else:
            found.append(turn)
    return found


def _new(id: str, pattern: re.Pattern[str], taken: set[str], mistral: bool) -> str:
    """Return a valid id that is not taken: `id` itself if possible."""
    if id and id not in taken and pattern.fullmatch(id + "\n"):
        return id
    number = 0
    while True:
        digest = blake2b(f"{number}:{id}".encode(errors="surrogatepass"), digest_size=16).hexdigest()
        new = digest[:9] if mistral else f"call_{digest[:24]}"
        if new not in taken:
            return new
        number += 1
