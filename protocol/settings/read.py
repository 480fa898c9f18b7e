"""Reader of `config.yaml` and of the environment into `Settings`, which reports every problem with its line.

`OtherKeys` has the keys that are not fields of `Settings`; `WITHOUT_EFFECT` those that are accepted and do nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from collections.abc import Mapping as Dict
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import inspect

from ..environment import REFERENCE, expanded, of_environment, variable_value
from ..mcp.config import PoolSettings
from ..problems import Problem, did_you_mean
from ..reading import Cursor, Field, Reading, fields_of, in_file_order
from ..schema import as_read, why_without_effect
from ..tree import Entry, Mapping, Node, Path, Scalar, Sequence, dotted, is_null
from ..yaml_tree import Source, parse_mapping
from .api import ADDRESS, ApiSettings, api_problems, is_address
from .model import (
    CLIENT_TYPES,
    KEYS_OF_TYPES,
    MODEL_TYPES,
    ClientSettings,
    ModelSettings,
    Settings,
)
from .patches import Patterns, check_client_patch, check_patch, of_variable
from .patches import variables as with_patches
from .vault import LOKIS_KEY, vault_problems

Text: TypeAlias = str | None
Flag: TypeAlias = bool | None
Whole: TypeAlias = int | None


class OtherKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Keys that are accepted and have no effect yet, or are read by name (`Settings.other`)."""

    save: Flag = None
    compat: Literal["standard", "loki"] | None = None
    chat_agent: Text = None
    keybindings: Text = None
    editor: Text = None
    wrap: Text = None
    wrap_code: Flag = None
    highlight: Flag = None
    light_theme: Flag = None
    theme: Text = None
    left_prompt: Text = None
    right_prompt: Text = None
    save_shell_history: Flag = None
    sync_models_url: Text = None
    vault_password_file: Text = None
    function_calling_support: Flag = None
    function_calling: Flag = None
    auto_continue: Flag = None
    max_auto_continues: Whole = None
    inject_todo_instructions: Flag = None
    continuation_prompt: Text = None
    repl_prelude: Text = None
    cmd_prelude: Text = None
    agent_session: Text = None
    agent_prelude: Text = None
    save_session: Flag = None
    compression_threshold: Whole = None
    summarization_model: Text = None
    summarization_threshold: Whole = None
    summarization_prompt: Text = None
    summary_context_prompt: Text = None
    escalation_timeout: Whole = None
    max_concurrent_agents: Whole = None
    max_agent_depth: Whole = None


KEPT = OtherKeys.__struct_fields__
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def bare(wanted: inspect.Type) -> inspect.Type:
    """Return a type without its bounds; for a union, its first type (that of a value that is not null)."""
    while isinstance(wanted, inspect.Metadata | inspect.UnionType):
        wanted = wanted.type if isinstance(wanted, inspect.Metadata) else wanted.types[0]
    return wanted


def from_text(text: str, wanted: inspect.Type) -> Any:
    """Convert a text (of a variable or a reference) to the wanted type; return the text itself if it does not fit."""
    wanted = bare(wanted)
    try:
        if isinstance(wanted, inspect.IntType | inspect.FloatType):
            return float(text) if isinstance(wanted, inspect.FloatType) else int(text)
    except ValueError:
        return text
    return _FLAGS.get(text.lower(), text) if isinstance(wanted, inspect.BoolType) else text


WITHOUT_EFFECT: dict[str, str] = {
    "summarization_threshold": "set it in the file of an agent instead",
    "escalation_timeout": "set it in the file of an agent instead",
    "max_concurrent_agents": "set it in the file of an agent instead",
    "max_agent_depth": "set it in the file of an agent instead",
}
"""Keys that are accepted for compatibility with Loki and have no effect yet, with reasons. `doctor` and `validate`
report them.
"""


def without_effect(settings: Settings, text: str = "") -> list[Problem]:
    """Return a warning for every key of the settings without an effect, with its line in `text`.

    Runs do not report them: they are harmless there, and a user of Loki may have a dozen.
    """
    found: dict[Path, str] = {
        (key,): why for key, why in WITHOUT_EFFECT.items() if settings.other.get(key) not in (None, False, "")
    }
    for field in fields_of(PoolSettings):
        why = why_without_effect(field.type)
        if why is not None and getattr(settings.mcp_pool, field.name) != field.default:
            found["mcp_pool", field.name] = why
    where = Source(settings.file, text)
    what = "is a key of Loki that has no effect in Callboard yet"
    return [
        where.problem("warning", "ignored_key", f"`{dotted(path)}` {what}: {why}", path, at_key=True)
        for path, why in found.items()
    ]


Json = Any


class _Aliases(msgspec.Struct, frozen=True):
    """Keys with texts as values in `Settings`, for which the file may also hold lists."""

    mapping_tools: dict[str, str | tuple[str, ...]] = {}
    mapping_mcp_servers: dict[str, str | tuple[str, ...]] = {}


_OURS = ("model_from", "other", "file", "patches")
"""Fields of `Settings` without a key in the file."""

_NESTED = (
    "permissions",
    "visible_tools",
    "tool_roots",
    "mcp_pool",
    "document_loaders",
    "durable",
    "sandbox",
    "hooks",
    "api",
    "vault",
)
"""Keys with a mapping or a list as value; no environment variable sets them."""

_TEXTS = (inspect.StrType, inspect.AnyType)

# `sandbox` is a mapping or the name of a profile, so `CALLBOARD_SANDBOX=off` sets it as a scalar.
_NO_SCALARS = (*_OURS, *(key for key in _NESTED if key != "sandbox"), *_Aliases.__struct_fields__, "clients")
_IGNORED = {
    "default_reasoning_effort": "",
}
"""Keys of clients and models that Loki knows. They are accepted; a text here is shown as a warning."""


_OF_AICHAT = {
    "use_tools": "enabled_tools",
    "compress_threshold": "compression_threshold",
    "summarize_prompt": "summarization_prompt",
    "summary_prompt": "summary_context_prompt",
}
"""Names of keys in aichat, and the names of the same keys here."""


def read_settings(text: str, file: str, environ: Dict[str, str]) -> tuple[Settings, list[Problem]]:
    """Read `config.yaml` and the environment variables that set its keys (see `environment`).

    Args:
        text: text of the file; empty if there is no file.
        file: path of the file, for the problems.
        environ: the environment.

    Returns:
        the settings as far as they could be read, and every problem found.
    """
    root, problems = parse_mapping(text, file) if text.strip() else (None, [])
    problems = [problem for problem in problems if problem.code != "empty_file"]
    root = root or Mapping({}, 0, 0)
    reading = _Reading(file, environ)
    given = {"clients": tuple(reading.clients(Cursor(reading, root))), **_nested(root, file, reading.problems)}
    settings = reading.fill(Settings, _part(root, without=KEPT), what="the settings", given=given, hidden=_OURS)
    kept = msgspec.structs.asdict(reading.fill(OtherKeys, _part(root, KEPT)))
    reading.problems += vault_problems(settings.vault, _written(root, LOKIS_KEY), Source(file, text))
    overrides, variables = _overrides(environ, reading.problems)
    model_from = variables.get("model", file if settings.model else "")
    settings = msgspec.structs.replace(
        settings,
        **{key: value for key, value in overrides.items() if key not in KEPT},
        model_from=model_from,
        api=_listening(settings.api, environ, reading.problems),
        patches=_patches(environ, reading.problems),
        other={key: value for key in KEPT if (value := overrides.get(key, kept[key])) is not None},
        file=file,
    )
    return settings, in_file_order([*problems, *reading.problems])


def json_schema() -> dict[str, Json]:
    """Return the JSON Schema (2020-12) of `config.yaml`, for editors."""
    _, components = msgspec.json.schema_components([Settings, OtherKeys, _Aliases], ref_template="#/$defs/{name}")
    client = components["ClientSettings"]
    client["properties"]["type"] = {"enum": [*CLIENT_TYPES]}
    components["ModelSettings"]["properties"]["type"] = {"enum": [*MODEL_TYPES], "default": "chat"}
    tops = (as_read(components.pop(top.__name__))["properties"] for top in (Settings, OtherKeys, _Aliases))
    keys = {key: schema for top in tops for key, schema in top.items() if key not in _OURS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Callboard settings (config.yaml)",
        "type": "object",
        "properties": keys,
        "$defs": components,
    }


# --- reading ----------------------------------------------------------------------------------------------


class _Reading(Reading):
    """Reader of values that may refer to the environment."""

    def __init__(self, file: str, environ: Dict[str, str]) -> None:
        super().__init__(file, prefix="")
        self.environ = environ

    def clients(self, top: Cursor) -> Iterator[ClientSettings]:
        """Yield the clients that could be read. If two have the same name, report an error and keep the first."""
        names: set[str] = set()
        for part in self._items(top, "clients"):
            client = self._client(part)
            if client is None:
                continue
            if client.name in names:
                part.error("duplicate_client", f"two clients are called '{client.name}'")
            else:
                names.add(client.name)
                yield client

    def _client(self, part: Cursor) -> ClientSettings | None:
        if not isinstance(part.node, Mapping):
            part.misfit("a mapping")
            return None
        expected = "one of " + ", ".join(CLIENT_TYPES)
        if part.get("type") is None:
            part.error("missing_key", "this client has no `type`", expected=expected)
            return None
        models = tuple(self._models(part))
        client = self.fill(ClientSettings, self._known(part), part.path, what="a client", given={"models": models})
        at = part["type"]
        check_client_patch(part.get("patch"))
        if client.type not in CLIENT_TYPES:
            if not at.is_broken:
                compatible = (
                    f"for a provider with OpenAI's format write `type: openai-compatible` and `name: {client.type}`"
                )
                hint = did_you_mean(client.type, CLIENT_TYPES) or compatible
                at.error("unknown_client", f"unknown client type '{client.type}'", expected=expected, hint=hint)
            return None
        for key, types in KEYS_OF_TYPES.items():
            if key in part.entries and client.type not in types:
                part.key(key).warn("ignored_key", f"`{key}` is ignored: it is for clients of type {' or '.join(types)}")
            listed = part.get("models")
            for item in listed.items if listed is not None and listed.is_list else ():
                if isinstance(item.node, Mapping) and key in item.entries and client.type not in types:
                    of = f"models of clients of type {' or '.join(types)}"
                    item.key(key).warn("ignored_key", f"`{key}` is ignored: it is for {of}")
        if client.auth is not None and client.type in KEYS_OF_TYPES["auth"]:
            if client.oauth is None or not client.oauth.client_id:
                hint = "docs/providers.md explains how to get one"
                part.key("auth").warn(
                    "no_client_id", "`auth` needs an `oauth.client_id`; without it users can't sign in", hint=hint
                )
            if client.api_key:
                part.key("api_key").warn("ignored_key", "`api_key` is ignored: users sign in for this client (`auth`)")
        return msgspec.structs.replace(client, name=client.name or client.type)

    def _models(self, client: Cursor) -> Iterator[ModelSettings]:
        """Yield the models of a client. A model is a mapping with a `name`, or the name alone."""
        for item in self._items(client, "models"):
            if item.text is not None:
                yield ModelSettings(name=item.text)
            elif not isinstance(item.node, Mapping):
                item.misfit("a mapping")
            elif item.get("name") is None:
                item.error("missing_key", "this model has no `name`", expected="`name: ...`")
            else:
                model = self.fill(ModelSettings, self._known(item), item.path, what="a model")
                check_patch(item.get("patch"))
                if model.type in MODEL_TYPES:
                    yield model
                    continue
                message, path = f"unknown type '{model.type}' of a model", (*item.path, "type")
                expected, hint = "one of " + ", ".join(MODEL_TYPES), did_you_mean(model.type, MODEL_TYPES)
                self.report("error", "unknown_value", message, path, item.place, expected=expected, hint=hint)

    def _known(self, part: Cursor) -> Mapping:
        """Return the mapping without the keys that only Loki reads."""
        for key in _IGNORED.keys() & part.entries.keys():
            if why := _IGNORED[key]:
                part.key(key).warn("ignored_key", f"`{key}` is ignored: {why}")
        entries = {key: entry for key, entry in part.entries.items() if key not in _IGNORED}
        return Mapping(entries, part.node.line, part.node.column)

    def _items(self, part: Cursor, key: str) -> list[Cursor]:
        found = part.get(key)
        if found is not None and not found.is_list:
            found.misfit("a list")
        return [] if found is None else found.items

    # --- how this file differs from others ------------------------------------------------------------------

    def taken_as(self, wanted: inspect.Type, extra: Dict[str, Any], node: Node, path: Path) -> Node:  # noqa: ARG002 - an override
        """Return the scalar with its references replaced. A number becomes a text if the field is a text."""
        if isinstance(wanted, inspect.AnyType) and not isinstance(node, Scalar):
            return self._expanded_below(node, path)
        if not isinstance(node, Scalar) or is_null(node):
            return node
        kind, value = bare(wanted), node.value
        if isinstance(value, str) and "{" in value:
            value = self._expanded(node, value, path, later=isinstance(kind, _TEXTS) and path[:1] == ("clients",))
            if REFERENCE.search(node.text):
                value = from_text(value, kind)
        elif isinstance(kind, inspect.StrType) and isinstance(value, int | float):
            value = node.text  # `name: 4` means the text
        elif isinstance(kind, inspect.FloatType) and type(value) is int:
            value = float(value)
        return Scalar(value, node.text, node.line, node.column)

    def _expanded_below(self, node: Node, path: Path) -> Node:
        """Return any value with its references replaced, at every depth."""
        if isinstance(node, Mapping):
            entries = {
                key: msgspec.structs.replace(entry, value=self._expanded_below(entry.value, (*path, key)))
                for key, entry in node.entries.items()
            }
            return Mapping(entries, node.line, node.column)
        if isinstance(node, Sequence):
            items = [self._expanded_below(item, (*path, i)) for i, item in enumerate(node.items)]
            return Sequence(items, node.line, node.column)
        return self.taken_as(inspect.AnyType(), {}, node, path)

    def _expanded(self, node: Node, text: str, path: Path, *, later: bool) -> str:
        """Return the text with its references replaced. With `later`, secrets stay references until they are used."""

        def unset(reference: str, name: str) -> None:
            message = f"{reference} stands for the environment variable {name}, which is not set"
            self.report("warning", "unset_variable", message, path, node, hint=f"export {name}=...")

        return (of_environment if later else expanded)(text, self.environ, unset)

    def unknown_key(
        self,
        key: str,
        entry: Entry,
        path: Path,
        what: str,  # noqa: ARG002 - a line about the settings is short
        known: Iterable[str],
        elsewhere: Dict[str, str],  # noqa: ARG002 - an override
    ) -> None:
        """Warn of a key that no part of the program reads."""
        place, hint = (entry.line, entry.column), did_you_mean(key, [*known, *(KEPT if not path else ())])
        if not path and key in _OF_AICHAT:
            hint = f"write `{_OF_AICHAT[key]}`; `{key}` is aichat's name for it"
        self.report("warning", "unknown_key", f"unknown key '{key}'", (*path, key), place, hint=hint)


def _written(root: Mapping, key: str) -> str | None:
    """Return the text of a key exactly as the file spells it."""
    entry = root.entries.get(key)
    return entry.value.text if entry is not None and isinstance(entry.value, Scalar) else None


def _part(root: Mapping, keys: Container[str] | None = None, *, without: Container[str] = ()) -> Mapping:
    meant = {key: entry for key, entry in root.entries.items() if (keys is None or key in keys) and key not in without}
    return Mapping(meant, root.line, root.column)


def scalars() -> Iterator[tuple[type[msgspec.Struct], Field]]:
    """Yield the keys that environment variables may set, each with its struct."""
    structs: tuple[type[msgspec.Struct], ...] = (Settings, OtherKeys)
    return ((cls, field) for cls in structs for field in fields_of(cls) if field.name not in _NO_SCALARS)


def _overrides(environ: Dict[str, str], problems: list[Problem]) -> tuple[dict[str, Json], dict[str, str]]:
    """Return the scalars that environment variables set, and by key the variable that sets it."""
    values: dict[str, Json] = {}
    variables: dict[str, str] = {}
    for cls, field in scalars():
        name, text = variable_value(field.name, environ)
        if text:
            # A plain `Reading`: `${NAME}` in the value of a variable is not a reference.
            reading = Reading("environment")
            entry = Entry(Scalar(from_text(text, field.type), text, 0, 0), 0, 0)
            found = reading.fill(cls, Mapping({field.name: entry}, 0, 0))
            if not reading.problems:
                values[field.name], variables[field.name] = getattr(found, field.name), name
            for problem in reading.problems:
                message = f"{name} is {text!r}"
                problems.append(msgspec.structs.replace(problem, key=name, message=message, hint=None))
    return values, variables


def _listening(api: ApiSettings, environ: Dict[str, str], problems: list[Problem]) -> ApiSettings:
    """Return the block `api`, with the address of `CALLBOARD_SERVE_ADDR` if that is set and valid."""
    name, text = variable_value("serve_addr", environ)
    if not text or is_address(text):
        return msgspec.structs.replace(api, listen_addr=text) if text else api
    problems.append(
        Problem(
            severity="error",
            code="bad_value",
            file="environment",
            key=name,
            message=f"{name} is {text!r}",
            expected=ADDRESS,
        )
    )
    return api


def _patches(environ: Dict[str, str], problems: list[Problem]) -> dict[tuple[str, str], Patterns]:
    """Return the patches in environment variables, by client and kind of request."""
    found: dict[tuple[str, str], Patterns] = {}
    for name, client, api in with_patches(environ):
        if (client, api) not in found:
            reading = _Reading(f"{name} in the environment", environ)
            found[client, api] = of_variable(name, environ[name], reading)
            problems += reading.problems
    return found


def _nested(root: Mapping, file: str, problems: list[Problem]) -> dict[str, Any]:
    reading = Reading(file)
    nested = reading.fill(Settings, _part(root, _NESTED))
    aliases = msgspec.structs.asdict(reading.fill(_Aliases, _part(root, _Aliases.__struct_fields__)))
    # `without_effect` reports these on request; a warning in every run would be too much.
    found = [problem for problem in reading.problems if problem.code != "ignored_key"]
    problems += api_problems(nested.api, root.entries["api"].value, file, found) if "api" in root.entries else found
    return {key: getattr(nested, key) for key in _NESTED} | {
        key: {alias: names if isinstance(names, str) else ",".join(names) for alias, names in values.items()}
        for key, values in aliases.items()
    }
