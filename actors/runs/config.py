"""Settings of a root, or of one run, as an object. Files and environment variables do not affect them.

    acme = Config(
        name="acme",
        clients=[{"type": "openai", "api_key": key}],
        model="openai:gpt-5-mini",
        limits=Limits(max_cost=1.0),
    )

`clients` and `settings` have the keys of `config.yaml` (docs/providers.md). The same reader checks them, so a
misspelt key or a value out of range is an error that names the key.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ...protocol.deferred_types import defer
from ...protocol.errors import ConfigError, UsageError
from ...protocol.json_values import is_too_deep
from ...protocol.mcp.config import Server, read_mcp
from ...protocol.problems import Problem, errors_in
from ...protocol.requests import Limits
from ...protocol.settings import ClientSettings, Settings, read_settings

if TYPE_CHECKING:
    from ..work.middleware import Middleware
    from ..work.models.python_model import Model
else:
    defer(globals(), {"..work.middleware": "Middleware", "..work.models.python_model": "Model"})

PathLike: TypeAlias = str | os.PathLike[str]

SOURCE = "callboard.Config"
"""Name of the source in problems, in place of a file."""


class Config(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Configuration of a tenant, or of a program without a configuration directory: clients, files, limits, servers.

    Two runs with equal configurations share a tenant; see `Root.tenant`.

    Attributes:
        name: distinguishes tenants with otherwise equal settings; names the tenant in logs.
        clients: providers with their keys: mappings with the keys of `clients` in `config.yaml`, or the structs that
            reading such mappings returns.
        model: default model as `client:model`, or a model made in Python.
        models: models made in Python, which agents and graphs of the tenant name.
        middleware: functions around requests to models, the outermost first.
        limits: bounds for each run. Limits of a run can only narrow them.
        directory: directory of the tenant's agents, roles, sessions, knowledge bases, journals and caches. By default a
            temporary directory that is removed with the tenant.
        cwd: directory that tools and scripts work in; by default `work` in `directory`.
        roots: further directories in which the `fs_*` tools may work.
        secrets: values of `{{NAME}}` in clients, servers, and variables of agents. Models and processes do not get
            them, and they are redacted from all output.
        servers: MCP servers that agents may name: `Server` objects, or entries of `mcpServers` (`mcp.json`) by name.
        environ: environment variables for tools, scripts and servers, and values of `${NAME}`. `PATH`, `HOME` and the
            locale are added, and nothing else of this process's environment.
        settings: any other keys of `config.yaml`.
    """

    name: str = ""
    clients: Sequence[ClientSettings | Mapping[str, Any]] = ()
    model: str | Model = ""
    models: Sequence[Model] = ()
    middleware: Sequence[Middleware] = ()
    limits: Limits = Limits()
    directory: PathLike | None = None
    cwd: PathLike | None = None
    roots: Sequence[PathLike] = ()
    secrets: Mapping[str, str] = {}
    servers: Sequence[Server] | Mapping[str, Mapping[str, Any]] = ()
    environ: Mapping[str, str] = {}
    settings: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        """Check the types, for programs without a type checker.

        Raises:
            UsageError: a value has the wrong type, or `settings` has a key with a parameter of its own.
        """
        _check(self.name, str, "name", "text")
        if not hasattr(self.model, "request"):
            _check(self.model, str, "model", "`client:model`, or a callboard.Model")
        _check(self.limits, Limits, "limits", "a callboard.Limits")
        for key in ("clients", "roots", "models"):
            _check(getattr(self, key), list | tuple, key, "a list")
        if config_models(self):
            from ..work.models.python_model import by_name

            by_name(config_models(self), "Config(models=...)")
        if self.middleware:
            from ..work.middleware import checked

            checked(self.middleware, "Config(middleware=...)")
        for key in ("secrets", "environ"):
            values = getattr(self, key)
            _check(values, Mapping, key, "a mapping of names to texts")
            for name, value in values.items():
                if not isinstance(name, str) or not isinstance(value, str):
                    raise UsageError(f"Config({key}=...) must map names to texts: {name!r} is {type(value).__name__}")
        _check(self.settings, Mapping, "settings", "a mapping with keys of config.yaml")
        for key in ("directory", "cwd"):
            if getattr(self, key) is not None:
                _check(getattr(self, key), str | os.PathLike, key, "a path")
        _check(self.servers, list | tuple | Mapping, "servers", "a list of servers, or a mapping of names to entries")
        for key in sorted(self.settings.keys() & {"clients", "model", "vault"}):
            remedy = "Config(secrets=...)" if key == "vault" else f"Config({key}=...)"
            raise UsageError(f"Config(settings={{'{key}': ...}}) has no effect: use {remedy}")

    def __repr__(self) -> str:
        """Omit keys and secrets."""
        return f"Config(name={self.name!r}, model={model_name(self)!r})"


def config_models(config: Config) -> tuple[Model, ...]:
    """Return the models made in Python, including a default model made in Python."""
    return tuple(config.models) if isinstance(config.model, str) else (config.model, *config.models)


def model_name(config: Config) -> str:
    """Return the id of the default model, or ""."""
    return config.model if isinstance(config.model, str) else config.model.name


def settings_of(config: Config) -> tuple[Settings, list[Problem]]:
    """Return the settings, and warnings about them.

    Raises:
        ConfigError: they have errors; the text lists all of them.
    """
    given: dict[str, Any] = {**config.settings, "clients": [_plain(client) for client in config.clients]}
    if config.model:
        given["model"] = model_name(config)
    try:
        # JSON is valid YAML, so the reader of `config.yaml` checks the settings.
        plain = msgspec.to_builtins(given, str_keys=True)
        text = msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{SOURCE}: `clients` and `settings` may contain only values that YAML has: {error}"
        ) from None
    if is_too_deep(plain):
        raise ConfigError(f"{SOURCE}: `settings` is nested too deeply")
    settings, problems = read_settings(text, SOURCE, config.environ)
    problems = [_without_line(problem) for problem in problems]
    _raise_for([*errors_in(problems), *(problem for problem in problems if problem.code == "unknown_key")])
    return settings, problems


def servers_of(config: Config) -> dict[str, Server]:
    """Return the MCP servers by name.

    Raises:
        ConfigError: an entry has errors.
        UsageError: a listed server is no `Server`.
    """
    if not isinstance(config.servers, Mapping):
        for server in config.servers:
            _check(server, Server, "servers", "MCP servers (callboard.Server), or a mapping of names to entries")
        return {server.name: server for server in config.servers}
    if not config.servers:
        return {}
    entries = {"mcpServers": {name: dict(entry) for name, entry in config.servers.items()}}
    try:
        text = msgspec.json.encode(entries).decode()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{SOURCE}: `servers` may contain only values that mcp.json can have: {error}") from None
    read = read_mcp(text, SOURCE)
    _raise_for([_without_line(problem) for problem in errors_in(read.problems)])
    return {name: msgspec.structs.replace(server, where="") for name, server in read.servers.items()}


def key_of(config: Config) -> bytes:
    """Return bytes that are equal for equal configurations. They contain secrets.

    Raises:
        ConfigError: a value has a type that files cannot hold.
    """
    values = {name: getattr(config, name) for name in config.__struct_fields__}
    # Objects of the program are compared by identity. The tenant retains its `Config`, so an id is not reused.
    values["model"] = config.model if isinstance(config.model, str) else id(config.model)
    values["models"], values["middleware"] = [*map(id, config.models)], [*map(id, config.middleware)]
    values["clients"] = [_plain(client) for client in config.clients]
    for name in ("directory", "cwd"):
        values[name] = None if values[name] is None else os.path.abspath(values[name])  # noqa: PTH100 - a text
    values["roots"] = [os.fspath(root) for root in config.roots]
    try:
        return msgspec.json.encode(values, order="deterministic")
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{SOURCE}: `clients`, `servers` and `settings` may contain only values that files can have: {error}"
        ) from None


def narrower(limits: Limits, other: Limits) -> Limits:
    """Return limits of which each value is the smaller one of both; a limit that only one of them has applies."""
    if limits == Limits():
        return other
    pairs = {name: (getattr(limits, name), getattr(other, name)) for name in Limits.__struct_fields__}
    least = {name: min((value for value in both if value is not None), default=None) for name, both in pairs.items()}
    return Limits(**least)


def _plain(client: ClientSettings | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(client, ClientSettings):
        plain: dict[str, Any] = msgspec.to_builtins(client)
        return plain
    if not isinstance(client, Mapping):
        raise UsageError(f"Config(clients=...) must list mappings with a `type`, not {type(client).__name__}")
    return dict(client)


def _check(value: object, kind: Any, key: str, wanted: str) -> None:
    if not isinstance(value, kind):
        raise UsageError(f"Config({key}=...) must be {wanted}, not {type(value).__name__}")


def _without_line(problem: Problem) -> Problem:
    """Return a problem of an object: it has no line, so the key takes the place of the position."""
    where = f"{problem.file}: `{problem.key}`" if problem.key else problem.file
    return msgspec.structs.replace(problem, file=where, line=0, column=0)


def _raise_for(errors: Sequence[Problem]) -> None:
    if errors:
        count = f"{len(errors)} error{'' if len(errors) == 1 else 's'}"
        raise ConfigError("\n".join([f"{SOURCE} has {count}:", *(f"  {error}" for error in errors)]))
