"""What of an agent can be set from outside: its variables, and a few keys of its file by the environment.

In the order of who wins: what the caller gave (`--var`), `<AGENT>_VARIABLES` in the environment (a JSON object), the
default in the file. A variable that has none of these is missing. A default may name a secret, `{{NAME}}`: tools and
scripts get the secret, models don't.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar, get_args

import msgspec

from ...protocol.agent import Agent
from ...protocol.chat import ReasoningEffort
from ...protocol.decoding import decode_json
from ...protocol.errors import ConfigError, UsageError
from ...protocol.graph.model import Graph, Variable
from ...protocol.mcp.config import split
from ...protocol.problems import did_you_mean
from ...protocol.references import Secrets, with_secrets
from ...protocol.source import Source


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The values of an agent's variables.

    Attributes:
        real: for tools and scripts: secrets are put in.
        shown: for models: `{{NAME}}` stands as it was written.
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
    """Every declared variable's value.

    Args:
        secrets: where `{{NAME}}` is looked up, the vault; None for `environ`.
        source: the agent's file, to say where a secret is named.

    Raises:
        UsageError: a value was given for a variable that is not declared, or a variable has no value.
        ConfigError: a variable's value names a secret that is not there.
    """
    declared = tuple(declared)
    if not declared and not given:
        return Values(real={}, shown={})
    found = _Found(agent, declared, given, environ, environ if secrets is None else secrets)
    if found.missing:
        lines = "\n".join(f"  - {variable.name}: {found.about(variable, source)}" for variable in found.missing)
        secret = next((found.lacks[each.name] for each in found.missing if each.name in found.lacks), None)
        first = found.missing[0].name
        either = f"keep the secret: callboard vault add {secret}" if secret else "give them a default in the file"
        kind = ConfigError if all(each.name in found.lacks for each in found.missing) else UsageError
        how = f"--var {first}=VALUE (behind -a: --agent-variable {first} VALUE)"
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
    """The declared variables that have no value yet, for whoever can ask for them.

    Raises:
        UsageError: a value was given for a variable that is not declared.
    """
    return _Found(agent, tuple(declared), given, environ, environ if secrets is None else secrets).missing


class _Found:
    """The values that are known.

    `{{NAME}}` is a secret where the author of the file or the user of this machine has written it: in a default, and in
    `<AGENT>_VARIABLES`. What a caller gives is taken as it is, since a model or a stranger may have made it; only the
    default itself, given back, means the default.

    Attributes:
        real, shown: see `Values`.
        missing: the variables that have no value.
        lacks: of those that name a secret that is not there, the name.
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
                hint = did_you_mean(name, names) or (f"it has: {', '.join(names)}" if names else "it has none")
                raise UsageError(f"agent '{agent}' has no variable '{name}'; {hint}")
        self._from_environ = _from_environ(agent, environ)
        for variable in declared:
            said = given.get(variable.name)
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
        return f"{lead}{where} names the secret {{{{{secret}}}}}, which is neither in the vault nor set"


A = TypeVar("A", Graph, Agent)


def overridden(agent: A, environ: Mapping[str, str]) -> A:
    """The agent as the environment wants it.

    `<AGENT>_MODEL`, `<AGENT>_TEMPERATURE`, `<AGENT>_TOP_P`, `<AGENT>_REASONING_EFFORT`, `<AGENT>_INSTRUCTIONS` (unless
    they are dynamic), and `<AGENT>_GLOBAL_TOOLS` and `<AGENT>_MCP_SERVERS`, which are JSON lists, or names with commas
    between them.

    Raises:
        ConfigError: one of them is no number, no level, or no list of texts.
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
    """The session that an LLM agent is always run in: `<AGENT>_AGENT_SESSION`, its file's `agent_session`, else the
    one of the settings; None for none.
    """
    named = _override(agent.name, "AGENT_SESSION", environ) or agent.agent_session
    return named or next((str(name) for key in _SESSION_KEYS if (name := settings.get(key))), None)


_SESSION_KEYS = ("agent_session", "agent_prelude")


def named_file_of(agent: str, environ: Mapping[str, str]) -> str | None:
    """The file that `<AGENT>_CONFIG_FILE` names in the place of an agent's own, if it is YAML: programs have variables
    of such names, too (`AWS_CONFIG_FILE`).
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
    return {"reasoning_effort": text, "thinking_budget": None}  # which are not mixed


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
    """`<AGENT>_<WHAT>` of the environment (`CODER_MODEL`), if it is set and not empty."""
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
    values: dict[str, str] = {}  # as Loki's pages have it: [{"name": "a", "value": "b"}], or [{"a": "b"}]
    for each in found:
        values |= {each["name"]: each["value"]} if each.keys() == {"name", "value"} else each
    return values
