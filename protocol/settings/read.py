"""Reads `config.yaml` and the environment into `Settings`, and says all that is wrong with them, each with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from .. import source
from ..mcp.config import PoolSettings
from ..permissions import Permissions
from ..problems import Problem, did_you_mean
from ..reading import Reading
from ..references import REFERENCE, expanded
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
T = TypeVar("T", bound=msgspec.Struct)


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
    root, problems = source.parse_mapping(text, file) if text.strip() else (None, [])
    problems = [problem for problem in problems if problem.code != "empty_file"]
    reader = _Reader(file, environ, problems)
    values = reader.scalars(root) if root is not None else {}
    model_from = file if values.get("model") else ""
    overrides = reader.overrides()
    if "model" in overrides:
        model_from = "CALLBOARD_MODEL"
    values.update(overrides)
    used = {key: values.pop(key) for key in USED if values.get(key) is not None}
    values = {key: value for key, value in values.items() if key not in USED}
    clients = tuple(reader.clients(root)) if root is not None else ()
    nested = reader.nested(root) if root is not None else _Nested()
    settings = Settings(
        **used,
        model_from=model_from,
        clients=clients,
        permissions=nested.permissions,
        visible_tools=nested.visible_tools,
        mapping_tools=_joined(nested.mapping_tools),
        tool_roots=nested.tool_roots,
        mapping_mcp_servers=_joined(nested.mapping_mcp_servers),
        mcp_pool=nested.mcp_pool,
        document_loaders=nested.document_loaders,
        api=nested.api,
        other=values,
        file=file,
    )
    return settings, problems


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
    """Turns nodes into values and collects what is wrong with them."""

    def __init__(self, file: str, environ: Mapping[str, str], problems: list[Problem]) -> None:
        self.file = file
        self.environ = environ
        self.problems = problems

    def scalars(self, root: source.Mapping) -> dict[str, Json]:
        """The values of all known keys but `clients`."""
        values: dict[str, Json] = {}
        for key, entry in root.entries.items():
            if key in _SCALARS:
                values[key] = self.value(entry.value, _SCALARS[key], (key,))
            elif key != "clients" and key not in _NESTED:
                self.unknown(entry, (key,), _TOP)
        return {key: value for key, value in values.items() if value is not None}

    def nested(self, root: source.Mapping) -> _Nested:
        """The keys that `Reading` reads."""
        entries = {key: entry for key, entry in root.entries.items() if key in _NESTED}
        reading = Reading(self.file)
        nested = reading.fill(_Nested, msgspec.structs.replace(root, entries=entries))
        # `without_effect` tells these where they are asked for; every run would be too often
        reading.problems = [problem for problem in reading.problems if problem.code != "ignored_key"]
        if "api" in entries:
            reading.problems = api_problems(nested.api, entries["api"].value, self.file, reading.problems)
        self.problems.extend(reading.problems)
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
                self.problems.append(
                    Problem(
                        severity="error",
                        file="environment",
                        code="bad_value",
                        key=name,
                        message=f"{name} is {text!r}",
                        expected=kind,
                    )
                )
            else:
                values[key] = value
        return values

    def clients(self, root: source.Mapping) -> Iterator[ClientSettings]:
        """The clients that could be read. Two of one name are an error; the first counts."""
        entry = root.entries.get("clients")
        if entry is None or _is_null(entry.value):
            return
        names: set[str] = set()
        for index, node in enumerate(self.items(entry.value, ("clients",))):
            path = ("clients", index)
            client = self.client(node, path)
            if client is None:
                continue
            if client.name in names:
                self.problem(node, path, "duplicate_client", f"two clients are called '{client.name}'")
            else:
                names.add(client.name)
                yield client

    def client(self, node: source.Node, path: source.Path) -> ClientSettings | None:
        values = self.struct(node, ClientSettings, path)
        if values is None:
            return None
        kind = values.get("type")
        if kind is None:
            expected = "one of " + ", ".join(CLIENT_TYPES)
            self.problem(node, path, "missing_key", "this client has no `type`", expected=expected)
            return None
        entry = node.entries["type"] if isinstance(node, source.Mapping) else None
        place = entry.value if entry is not None else node
        if kind in LATER_TYPES:
            self.later(place, (*path, "type"), kind, values)
        elif kind not in CLIENT_TYPES:
            self.problem(
                place,
                (*path, "type"),
                "unknown_client",
                f"unknown client type '{kind}'",
                expected="one of " + ", ".join(CLIENT_TYPES),
                hint=did_you_mean(kind, CLIENT_TYPES),
            )
            return None
        values["name"] = values.get("name") or kind
        return ClientSettings(**values)

    def later(self, node: source.Node, path: source.Path, kind: str, values: dict[str, Json]) -> None:
        """Say what a client of such a type can't be used for, unless it isn't meant for that."""
        models = values.get("models") or ()
        if kind in KNOWLEDGE_TYPES and models and all(model.type != "chat" for model in models):
            return
        message = f"clients of type '{kind}' are not supported yet; this one is left out"
        if kind in KNOWLEDGE_TYPES:
            message = f"models of a client of type '{kind}' can't chat yet; they can be used for knowledge"
        self.problem(node, path, "unsupported_client", message, warning=True)

    # one struct

    def struct(self, node: source.Node, kind: type[msgspec.Struct], path: source.Path) -> dict[str, Json] | None:
        """The fields of `kind` that the mapping `node` sets, each checked; None if it is no mapping."""
        if not isinstance(node, source.Mapping):
            self.misfit(node, path, "a mapping")
            return None
        hints = {field.name: field.type for field in msgspec.structs.fields(kind)}
        values: dict[str, Json] = {}
        for key, entry in node.entries.items():
            here = (*path, key)
            if key in _IGNORED:
                self.ignored(entry, here, _IGNORED[key])
            elif key not in hints:
                self.unknown(entry, here, tuple(hints))
            elif hints[key] in _PRIMITIVES:
                values[key] = self.value(entry.value, _PRIMITIVES[hints[key]], here)
            elif key == "models":
                values[key] = tuple(self.models(entry.value, here))
            else:
                fields = {} if _is_null(entry.value) else self.struct(entry.value, Extra, here)
                values[key] = Extra(**(fields or {}))
        return {key: value for key, value in values.items() if value is not None}

    def models(self, node: source.Node, path: source.Path) -> Iterator[ModelSettings]:
        """A model is a mapping with a `name`, or its name alone."""
        for index, item in enumerate(self.items(node, path)):
            here = (*path, index)
            if isinstance(item, source.Scalar) and isinstance(item.value, str):
                yield ModelSettings(name=item.value)
                continue
            values = self.struct(item, ModelSettings, here)
            if values is None:
                continue
            if not values.get("name"):
                self.problem(item, here, "missing_key", "this model has no `name`", expected="`name: ...`")
                continue
            kind = values.get("type", "chat")
            if kind not in MODEL_TYPES:
                self.problem(
                    item,
                    (*here, "type"),
                    "bad_value",
                    f"unknown type '{kind}' of a model",
                    expected="one of " + ", ".join(MODEL_TYPES),
                    hint=did_you_mean(kind, MODEL_TYPES),
                )
                continue
            yield ModelSettings(**values)

    def items(self, node: source.Node, path: source.Path) -> list[source.Node]:
        if isinstance(node, source.Sequence):
            return node.items
        if not _is_null(node):
            self.misfit(node, path, "a list")
        return []

    # one value

    def value(self, node: source.Node, kind: str, path: source.Path) -> Json:
        """The scalar at `node`, with its references replaced; None if it is null or of the wrong kind."""
        if _is_null(node):
            return None
        found = node.value if isinstance(node, source.Scalar) else None
        if isinstance(node, source.Scalar) and isinstance(found, str):
            found = self.expanded(node, found, path)
            if kind is not TEXT and REFERENCE.search(node.text):  # a reference may stand for a number
                found = from_text(found, kind)
        if kind is TEXT and isinstance(node, source.Scalar) and isinstance(found, int | float):
            return node.text  # `name: 4` means the text
        if found is not None and fits(found, kind):
            return float(found) if kind is NUMBER else found
        self.misfit(node, path, kind)
        return None

    def expanded(self, node: source.Node, text: str, path: source.Path) -> str:
        """`text` with `${NAME}` and `{{NAME}}` replaced from the environment."""

        def unset(reference: str, name: str) -> None:
            self.problem(
                node,
                path,
                "unset_variable",
                f"{reference} stands for the environment variable {name}, which is not set",
                warning=True,
                hint=f"export {name}=...",
            )

        return expanded(text, self.environ, unset)

    # problems

    def misfit(self, node: source.Node, path: source.Path, expected: str) -> None:
        found = f"`{source.dotted(path)}` is {source.describe(node)}"
        self.problem(node, path, "bad_value", found, expected=expected)

    def unknown(self, entry: source.Entry, path: source.Path, known: tuple[str, ...]) -> None:
        key = str(path[-1])
        place = source.Scalar(None, "", entry.line, entry.column)
        self.problem(place, path, "unknown_key", f"unknown key '{key}'", warning=True, hint=did_you_mean(key, known))

    def ignored(self, entry: source.Entry, path: source.Path, why: str) -> None:
        if why:
            place = source.Scalar(None, "", entry.line, entry.column)
            self.problem(place, path, "ignored_key", f"`{path[-1]}` is ignored: {why}", warning=True)

    def problem(
        self,
        node: source.Node,
        path: source.Path,
        code: str,
        message: str,
        *,
        warning: bool = False,
        expected: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.problems.append(
            Problem(
                severity="warning" if warning else "error",
                file=self.file,
                line=node.line,
                column=node.column,
                code=code,
                key=source.dotted(path),
                message=message,
                expected=expected,
                hint=hint,
            )
        )


def _is_null(node: source.Node) -> bool:
    return isinstance(node, source.Scalar) and node.value is None


def _joined(aliases: Mapping[str, str | tuple[str, ...]]) -> dict[str, str]:
    """Aliases with what they stand for in one text."""
    return {alias: names if isinstance(names, str) else ",".join(names) for alias, names in aliases.items()}
