"""Reads `config.yaml` and the environment into `Settings`, and says all that is wrong with them, each with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ..cursor import Cursor
from ..mcp.config import PoolSettings
from ..permissions import Permissions
from ..problems import Problem, did_you_mean
from ..reading import Reading
from ..references import REFERENCE, expanded
from ..source import parse_mapping
from ..tree import Mapping as Entries
from ..tree import Scalar, describe, dotted, is_null
from .api import ApiSettings
from .api_checks import api_problems
from .keys import FLAG, INT, KEPT, LEAST, NUMBER, TEXT, USED, WORDS, fits, from_text
from .model import (
    CLIENT_TYPES,
    KNOWLEDGE_TYPES,
    LATER_TYPES,
    MODEL_TYPES,
    ClientSettings,
    Extra,
    ModelSettings,
    Settings,
)

Json = Any


class _Nested(msgspec.Struct, frozen=True, kw_only=True):
    """The keys that are no scalars, which `Reading` reads."""

    permissions: Permissions = {}
    visible_tools: tuple[str, ...] | None = None
    mapping_tools: dict[str, str | tuple[str, ...]] = {}
    tool_roots: tuple[str, ...] = ()
    mapping_mcp_servers: dict[str, str | tuple[str, ...]] = {}
    mcp_pool: PoolSettings = PoolSettings()
    document_loaders: dict[str, str] = {}
    api: ApiSettings = ApiSettings()


_NESTED = _Nested.__struct_fields__
_SCALARS = {**USED, **KEPT}
_TOP = (*_SCALARS, *_NESTED, "clients")
_IGNORED = {
    "patch": "patches of requests are not applied yet",
    "auth": "signing in is not possible yet; use `api_key`",
    "default_reasoning_effort": "",
}
"""Keys of clients and models that Loki knows: accepted, with a warning where ignoring them can be felt."""

_PRIMITIVES: dict[Any, str] = {str: TEXT, bool: FLAG, int: INT, float: NUMBER, int | None: INT}


def read_settings(text: str, file: str, environ: Mapping[str, str]) -> tuple[Settings, list[Problem]]:
    """Read `config.yaml` and the `CALLBOARD_*` variables.

    Args:
        text: of the file; empty if there is none.
        file: its path, for the problems.
        environ: the environment.

    Returns:
        the settings as far as they could be read, and all that is wrong with them.
    """
    root, problems = parse_mapping(text, file) if text.strip() else (None, [])
    problems = [problem for problem in problems if problem.code != "empty_file"]
    reader = _Reader(Reading(file), environ)
    top = Cursor(reader.reading, root or Entries({}, 0, 0))
    values = reader.scalars(top)
    overrides = reader.overrides()
    model_from = "CALLBOARD_MODEL" if "model" in overrides else file if values.get("model") else ""
    values |= overrides
    clients = tuple(reader.clients(top))
    nested = msgspec.structs.asdict(reader.nested(top))
    for mapping in ("mapping_tools", "mapping_mcp_servers"):
        nested[mapping] = {alias: _joined(names) for alias, names in nested[mapping].items()}
    settings = Settings(
        **{key: value for key, value in values.items() if key in USED},
        **nested,
        model_from=model_from,
        clients=clients,
        other={key: value for key, value in values.items() if key not in USED},
        file=file,
    )
    return settings, [*problems, *reader.reading.problems]


def json_schema() -> dict[str, Json]:
    """JSON Schema (2020-12) of `config.yaml`, for editors."""
    kinds = {
        TEXT: {"type": ["string", "null"]},
        FLAG: {"type": ["boolean", "null"]},
        INT: {"type": ["integer", "null"]},
        NUMBER: {"type": ["number", "null"]},
        **{kind: {"enum": [*words, None]} for kind, words in WORDS.items()},
        **{kind: {"type": ["integer", "null"], "minimum": least} for kind, least in LEAST.items()},
    }
    schema, components = msgspec.json.schema_components([ClientSettings, _Nested], ref_template="#/$defs/{name}")
    client = components["ClientSettings"]
    client["properties"]["type"] = {"enum": [*CLIENT_TYPES, *LATER_TYPES]}
    components["ModelSettings"]["properties"]["type"] = {"enum": [*MODEL_TYPES], "default": "chat"}
    for name in ("patch", "auth"):
        client["properties"][name] = {"description": f"Loki's; {_IGNORED[name]}"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Callboard settings (config.yaml)",
        "type": "object",
        "properties": {
            **{key: kinds[kind] for key, kind in _SCALARS.items()},
            **components.pop("_Nested")["properties"],
            "clients": {"type": "array", "items": schema[0]},
        },
        "$defs": components,
    }


# --- reading ----------------------------------------------------------------------------------------------


class _Reader:
    """Turns a tree into values; `reading` collects what is wrong with them."""

    def __init__(self, reading: Reading, environ: Mapping[str, str]) -> None:
        self.reading = reading
        self.environ = environ

    def scalars(self, top: Cursor) -> dict[str, Json]:
        """The values of all known keys that hold one each."""
        values: dict[str, Json] = {}
        for key in top.entries:
            if key in _SCALARS:
                values[key] = self.value(top[key], _SCALARS[key])
            elif key != "clients" and key not in _NESTED:
                self.unknown(top, key, _TOP)
        return {key: value for key, value in values.items() if value is not None}

    def nested(self, top: Cursor) -> _Nested:
        """The keys that `Reading` reads."""
        entries = {key: entry for key, entry in top.entries.items() if key in _NESTED}
        reading = Reading(self.reading.file)
        nested = reading.fill(_Nested, Entries(entries, top.node.line, top.node.column))
        # `without_effect` tells these where they are asked for; every run would be too often
        problems = [problem for problem in reading.problems if problem.code != "ignored_key"]
        if "api" in entries:
            problems = api_problems(nested.api, entries["api"].value, reading.file, problems)
        self.reading.problems.extend(problems)
        return nested

    def overrides(self) -> dict[str, Json]:
        """The scalars that the environment sets. An empty variable counts as not set."""
        values: dict[str, Json] = {}
        for key, kind in _SCALARS.items():
            name = f"CALLBOARD_{key.upper()}"
            text = self.environ.get(name, "")
            if not text:
                continue
            value = from_text(text, kind)
            if value is None:
                message = f"{name} is {text!r}"
                problem = Problem(
                    severity="error", file="environment", code="bad_value", key=name, message=message, expected=kind
                )
                self.reading.problems.append(problem)
            else:
                values[key] = value
        return values

    def clients(self, top: Cursor) -> Iterator[ClientSettings]:
        """The clients that could be read. Two of one name are an error; the first counts."""
        names: set[str] = set()
        for part in self.items(top["clients"]) if "clients" in top.entries else ():
            client = self.client(part)
            if client is None:
                continue
            if client.name in names:
                part.error("duplicate_client", f"two clients are called '{client.name}'")
            else:
                names.add(client.name)
                yield client

    def client(self, part: Cursor) -> ClientSettings | None:
        values = self.struct(part, ClientSettings)
        if values is None:
            return None
        kind = values.get("type")
        expected = "one of " + ", ".join(CLIENT_TYPES)
        if kind is None:
            part.error("missing_key", "this client has no `type`", expected=expected)
            return None
        if kind in LATER_TYPES:
            self.later(part["type"], kind, values)
        elif kind not in CLIENT_TYPES:
            hint = did_you_mean(kind, CLIENT_TYPES)
            part["type"].error("unknown_client", f"unknown client type '{kind}'", expected=expected, hint=hint)
            return None
        values["name"] = values.get("name") or kind
        return ClientSettings(**values)

    def later(self, part: Cursor, kind: str, values: dict[str, Json]) -> None:
        """Say what a client of such a type can't be used for, unless it isn't meant for that."""
        models = values.get("models") or ()
        if kind in KNOWLEDGE_TYPES and models and all(model.type != "chat" for model in models):
            return
        message = f"clients of type '{kind}' are not supported yet; this one is left out"
        if kind in KNOWLEDGE_TYPES:
            message = f"models of a client of type '{kind}' can't chat yet; they can be used for knowledge"
        part.warn("unsupported_client", message)

    # one struct

    def struct(self, part: Cursor, kind: type[msgspec.Struct]) -> dict[str, Json] | None:
        """The fields of `kind` that the mapping sets, each checked; None if it is no mapping."""
        if not isinstance(part.node, Entries):
            self.misfit(part, "a mapping")
            return None
        hints = {field.name: field.type for field in msgspec.structs.fields(kind)}
        values: dict[str, Json] = {}
        for key in part.entries:
            if key in _IGNORED:
                if why := _IGNORED[key]:
                    part.key(key).warn("ignored_key", f"`{key}` is ignored: {why}")
            elif key not in hints:
                self.unknown(part, key, tuple(hints))
            elif hints[key] in _PRIMITIVES:
                values[key] = self.value(part[key], _PRIMITIVES[hints[key]])
            elif key == "models":
                values[key] = tuple(self.models(part[key]))
            else:
                extra = part.get(key)
                values[key] = Extra(**(extra and self.struct(extra, Extra)) or {})
        return {key: value for key, value in values.items() if value is not None}

    def models(self, part: Cursor) -> Iterator[ModelSettings]:
        """A model is a mapping with a `name`, or its name alone."""
        for item in self.items(part):
            if item.text is not None:
                yield ModelSettings(name=item.text)
                continue
            values = self.struct(item, ModelSettings)
            if values is None:
                continue
            kind = values.get("type", "chat")
            if not values.get("name"):
                item.error("missing_key", "this model has no `name`", expected="`name: ...`")
            elif kind not in MODEL_TYPES:
                expected, hint = "one of " + ", ".join(MODEL_TYPES), did_you_mean(kind, MODEL_TYPES)
                at = item["type"]
                at.place = item.place
                at.error("bad_value", f"unknown type '{kind}' of a model", expected=expected, hint=hint)
            else:
                yield ModelSettings(**values)

    def items(self, part: Cursor) -> list[Cursor]:
        if not part.is_list and not is_null(part.node):
            self.misfit(part, "a list")
        return part.items

    # one value

    def value(self, part: Cursor, kind: str) -> Json:
        """The scalar, with its references replaced; None if it is null or of the wrong kind."""
        node = part.node
        if is_null(node):
            return None
        found = node.value if isinstance(node, Scalar) else None
        if isinstance(node, Scalar) and isinstance(found, str):
            found = self.expanded(part, found)
            if kind is not TEXT and REFERENCE.search(node.text):  # a reference may stand for a number
                found = from_text(found, kind)
        if kind is TEXT and isinstance(node, Scalar) and isinstance(found, int | float):
            return node.text  # `name: 4` means the text
        if found is not None and fits(found, kind):
            return float(found) if kind is NUMBER else found
        self.misfit(part, kind)
        return None

    def expanded(self, part: Cursor, text: str) -> str:
        """`text` with `${NAME}` and `{{NAME}}` replaced from the environment."""

        def unset(reference: str, name: str) -> None:
            message = f"{reference} stands for the environment variable {name}, which is not set"
            part.warn("unset_variable", message, f"export {name}=...")

        return expanded(text, self.environ, unset)

    # problems

    def misfit(self, part: Cursor, expected: str) -> None:
        part.error("bad_value", f"`{dotted(part.path)}` is {describe(part.node)}", expected=expected)

    def unknown(self, part: Cursor, key: str, known: tuple[str, ...]) -> None:
        part.key(key).warn("unknown_key", f"unknown key '{key}'", did_you_mean(key, known))


def _joined(names: str | tuple[str, ...]) -> str:
    return names if isinstance(names, str) else ",".join(names)
