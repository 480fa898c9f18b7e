"""Settings of an agent from outside its file: its variables, and some keys that the environment can override.

A variable gets its value from the first of these: the caller (`--var`), `<AGENT>_VARIABLES` in the environment (a JSON
object), the default in the file. Without any of them it is missing. A default may name a secret, `{{NAME}}`: tools and
scripts get the secret, models do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar, get_args

import msgspec

from ...protocol.agent import Agent
from ...protocol.chat import ReasoningEffort
from ...protocol.decoding import decode_json
from ...protocol.environment import Secrets, with_secrets
from ...protocol.errors import ConfigError, UsageError
from ...protocol.graph import Graph, Variable
from ...protocol.mcp.config import split
from ...protocol.problems import did_you_mean
from ...protocol.yaml_tree import Source


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """Values of an agent's variables, with and without secrets.

    Attributes:
        real: values for tools and scripts, with secrets inserted.
        shown: values for models, with `{{NAME}}` as written.
    """

    real: dict[str, str]
    shown: dict[str, str]


def resolve_variables(
    agent: str,
    declared: Iterable[Variable],
    given: Mapping[str, str],
    environ: Mapping[str, str],
    *,
    secrets: Secrets | None = None,
    source: Source | None = None,
) -> Values:
    """Return the value of every declared variable.

    Args:
        secrets: source of `{{NAME}}`, the vault; None for `environ`.
        source: the agent's file, to report the position of a secret's name.

    Raises:
        UsageError: a value was given for an undeclared variable, a variable has no value, or `<AGENT>_VARIABLES` is
            invalid.
        ConfigError: each variable without a value lacks only a secret that its text names.
    """
    declared = tuple(declared)
    if not declared and not given:
        return Values(real={}, shown={})
    found = _Found(agent, declared, given, environ, environ if secrets is None else secrets)
    if found.missing:
        lines = "\n".join(f"  - {variable.name}: {found.about(variable, source)}" for variable in found.missing)
        secret = next((found.lacks[each.name] for each in found.missing if each.name in found.lacks), None)
        first = found.missing[0].name
        either = f"store the secret: callboard vault add {secret}" if secret else "give them a default in the file"
        kind = ConfigError if all(each.name in found.lacks for each in found.missing) else UsageError
        how = (
            f"--var {first}=VALUE (behind -a: --agent-variable {first} VALUE), in a node of a graph with "
            f"`inputs: {{{first}: VALUE}}`"
        )
        raise kind(f"The following agent variables are required:\n{lines}\nSet them with {how}, or {either}.")
    return Values(real=found.real, shown=found.shown)


def missing_variables(
    agent: str,
    declared: Iterable[Variable],
    given: Mapping[str, str],
    environ: Mapping[str, str],
    *,
    secrets: Secrets | None = None,
) -> list[Variable]:
    """Return the declared variables without a value, so that the caller can ask for them.

    A variable whose text names a missing secret has no value.

    Raises:
        UsageError: a value was given for an undeclared variable, or `<AGENT>_VARIABLES` is invalid.
    """
    return _Found(agent, tuple(declared), given, environ, environ if secrets is None else secrets).missing


def lacking_values(
    agent: str, declared: Iterable[Variable], given: Iterable[str], environ: Mapping[str, str]
) -> list[str]:
    """Return the names of declared variables with no given value, none in the environment, and no default.

    For checks of files: the values of `given` are templates there, and secrets are not looked up.
    """
    known = {*given, *_from_environ(agent, environ)}
    return [variable.name for variable in declared if variable.default is None and variable.name not in known]


class _Found:
    """Known values of variables.

    `{{NAME}}` is replaced by a secret only in text by the author of the file or the user of this machine: in a default,
    and in `<AGENT>_VARIABLES`. A value from a caller is used literally, because a model or an unknown party may have
    made it. If the caller passes the default itself, it means the default.

    Attributes:
        real, shown: see `Values`.
        missing: variables without a value.
        lacks: missing secrets, by the variable that names them.
    """

    def __init__(
        self,
        agent: str,
        declared: tuple[Variable, ...],
        given: Mapping[str, str],
        environ: Mapping[str, str],
        secrets: Secrets,
    ) -> None:
        self.real: dict[str, str] = {}
        self.shown: dict[str, str] = {}
        self.missing: list[Variable] = []
        self.lacks: dict[str, str] = {}
        self._agent = agent
        self._declared = declared
        names = [variable.name for variable in declared]
        for name in given:
            if name not in names:
                hint = did_you_mean(name, names) or (
                    f"it has: {', '.join(names)}" if names else "the agent has no variables"
                )
                raise UsageError(f"agent '{agent}' has no variable '{name}'; {hint}")
        self._from_environ = _from_environ(agent, environ)
        for variable in declared:
            said = given.get(variable.name)
            # A caller's value is literal: a `{{NAME}}` in it must not reveal a secret.
            if said is not None and said != variable.default:
                self.real[variable.name] = self.shown[variable.name] = said
                continue
            written = variable.default if said is not None else self._from_environ.get(variable.name, variable.default)
            lacking: list[str] = []
            value = None if written is None else with_secrets(written, secrets, lacking.append)
            if lacking:
                self.lacks[variable.name] = lacking[0]
            if written is None or value is None or lacking:
                self.missing.append(variable)
            else:
                self.real[variable.name], self.shown[variable.name] = value, written

    def about(self, variable: Variable, source: Source | None) -> str:
        text = variable.description.strip()
        secret = self.lacks.get(variable.name)
        if secret is None:
            return text
        if variable.name in self._from_environ:
            where = f"{_variable(self._agent, 'VARIABLES')} in the environment"
        else:
            where = "its default"
            if source is not None and source.file:
                line, column = source.where(("variables", self._declared.index(variable), "default"))
                where += f" ({source.file}:{line}:{column})"
        lead = f"{text}: " if text else ""
        return (
            f"{lead}{where} refers to the secret {{{{{secret}}}}}, which is neither in the vault nor in the environment"
        )


A = TypeVar("A", Graph, Agent)


def overridden(agent: A, environ: Mapping[str, str]) -> A:
    """Return the agent with the overrides of the environment.

    `<AGENT>_MODEL`, `<AGENT>_TEMPERATURE`, `<AGENT>_TOP_P`, `<AGENT>_REASONING_EFFORT`, `<AGENT>_INSTRUCTIONS` (unless
    they are dynamic), and `<AGENT>_GLOBAL_TOOLS` and `<AGENT>_MCP_SERVERS`, which are JSON lists, or names separated by
    commas.

    Raises:
        ConfigError: a value is not a number, a level, or a list of texts.
    """
    said = {
        "model": _override(agent.name, "MODEL", environ),
        "temperature": _number(agent.name, "TEMPERATURE", environ),
        "top_p": _number(agent.name, "TOP_P", environ),
        "global_tools": _texts(agent.name, "GLOBAL_TOOLS", environ),
        "mcp_servers": _texts(agent.name, "MCP_SERVERS", environ),
    }
    if not getattr(agent, "dynamic_instructions", True):  # graphs have no instructions
        said["instructions"] = _override(agent.name, "INSTRUCTIONS", environ)
    changes = {key: value for key, value in said.items() if value is not None} | _thinking(agent.name, environ)
    return msgspec.structs.replace(agent, **changes) if changes else agent


def session_of(agent: Agent, settings: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """Return the session that an LLM agent always runs in; None for none.

    It is `<AGENT>_AGENT_SESSION`, else `agent_session` of its file, else that of the settings.
    """
    named = _override(agent.name, "AGENT_SESSION", environ) or agent.agent_session
    return named or next((str(name) for key in _SESSION_KEYS if (name := settings.get(key))), None)


_SESSION_KEYS = ("agent_session", "agent_prelude")


def named_file_of(agent: str, environ: Mapping[str, str]) -> str | None:
    """Return the file that `<AGENT>_CONFIG_FILE` names instead of an agent's own.

    None unless it is YAML: other programs have variables of such names, too (`AWS_CONFIG_FILE`).
    """
    named = _override(agent, "CONFIG_FILE", environ)
    return named if named is not None and named.endswith((".yaml", ".yml")) else None


def _thinking(agent: str, environ: Mapping[str, str]) -> dict[str, Any]:
    text = _override(agent, "REASONING_EFFORT", environ)
    if text is None:
        return {}
    if text not in get_args(ReasoningEffort):
        variable, levels = _variable(agent, "REASONING_EFFORT"), ", ".join(get_args(ReasoningEffort))
        raise ConfigError(f"{variable} in the environment must be one of {levels}, not '{text}'")
    return {"reasoning_effort": text, "thinking_budget": None}  # the two settings exclude each other


def _texts(agent: str, what: str, environ: Mapping[str, str]) -> tuple[str, ...] | None:
    text = _override(agent, what, environ)
    if text is None:
        return None
    if not text.lstrip().startswith(("[", "{", '"')):
        return tuple(split(text))
    try:
        return decode_json(text, tuple[str, ...])
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{_variable(agent, what)} in the environment must be names such as a,b or a JSON list of texts such as "
            f'["a", "b"]: {error}'
        ) from error


def _number(agent: str, what: str, environ: Mapping[str, str]) -> float | None:
    text = _override(agent, what, environ)
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{_variable(agent, what)} in the environment must be a number, not '{text}'") from None


def _override(agent: str, what: str, environ: Mapping[str, str]) -> str | None:
    """Return the value of `<AGENT>_<WHAT>` (`CODER_MODEL`) in the environment, or None if it is unset or empty."""
    return environ.get(_variable(agent, what)) or None


@lru_cache(maxsize=1_024)
def _variable(agent: str, what: str) -> str:
    return f"{agent.upper().replace('-', '_').replace(' ', '_')}_{what}"


def _from_environ(agent: str, environ: Mapping[str, str]) -> dict[str, str]:
    text = _override(agent, "VARIABLES", environ)
    if text is None:
        return {}
    try:
        found = decode_json(text, dict[str, str] | list[dict[str, str]])
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{_variable(agent, 'VARIABLES')} in the environment must be a JSON object of texts: {error}"
        ) from error
    if isinstance(found, dict):
        return found
    values: dict[str, str] = {}  # as in Loki's documentation: [{"name": "a", "value": "b"}], or [{"a": "b"}]
    for each in found:
        values |= {each["name"]: each["value"]} if each.keys() == {"name", "value"} else each
    return values
