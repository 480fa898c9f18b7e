"""What of an agent can be set from outside: its variables, and a few keys of its file by the environment.

In the order of who wins: what the caller gave (`--var`), `<AGENT>_VARIABLES` in the environment (a JSON object), the
default in the file. A variable that has none of these is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from ..protocol.agent import Agent
from ..protocol.errors import ConfigError, UsageError
from ..protocol.graph import Graph
from ..protocol.graph.model import Variable
from ..protocol.mcp.config import split
from ..protocol.problems import did_you_mean


def resolve_variables(
    agent: str, declared: Iterable[Variable], given: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Every declared variable's value.

    Raises:
        UsageError: a value was given for a variable that is not declared, or a variable has no value.
    """
    values, missing = _resolved(agent, tuple(declared), given, environ)
    if missing:
        lines = "\n".join(f"  - {variable.name}: {variable.description.strip()}" for variable in missing)
        raise UsageError(
            f"The following agent variables are required:\n{lines}\n"
            f"Set them with --var {missing[0].name}=VALUE, or give them a default in the file."
        )
    return values


def missing_variables(
    agent: str, declared: Iterable[Variable], given: Mapping[str, str], environ: Mapping[str, str]
) -> list[Variable]:
    """The declared variables that have no value yet, for whoever can ask for them.

    Raises:
        UsageError: a value was given for a variable that is not declared.
    """
    return _resolved(agent, tuple(declared), given, environ)[1]


def _resolved(
    agent: str, declared: tuple[Variable, ...], given: Mapping[str, str], environ: Mapping[str, str]
) -> tuple[dict[str, str], list[Variable]]:
    """The values that are known, and the variables that have none."""
    names = [variable.name for variable in declared]
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names) or (f"it has: {', '.join(names)}" if names else "it has none")
            raise UsageError(f"agent '{agent}' has no variable '{name}'; {hint}")
    from_environ = _from_environ(agent, environ)
    values: dict[str, str] = {}
    missing: list[Variable] = []
    for variable in declared:
        value = given.get(variable.name, from_environ.get(variable.name, variable.default))
        if value is None:
            missing.append(variable)
        else:
            values[variable.name] = value
    return values, missing


A = TypeVar("A", Graph, Agent)


def overridden(agent: A, environ: Mapping[str, str]) -> A:
    """The agent as the environment wants it.

    `<AGENT>_MODEL`, `<AGENT>_TEMPERATURE`, `<AGENT>_TOP_P`, and `<AGENT>_GLOBAL_TOOLS` and `<AGENT>_MCP_SERVERS`, which
    are JSON lists, or names with commas between them.

    Raises:
        ConfigError: one of them is no number, or no list of texts.
    """
    return msgspec.structs.replace(
        agent,
        model=_override(agent.name, "MODEL", environ) or agent.model,
        temperature=_number(agent.name, "TEMPERATURE", environ, agent.temperature),
        top_p=_number(agent.name, "TOP_P", environ, agent.top_p),
        global_tools=_texts(agent.name, "GLOBAL_TOOLS", environ, agent.global_tools),
        mcp_servers=_texts(agent.name, "MCP_SERVERS", environ, agent.mcp_servers),
    )


def _texts(agent: str, what: str, environ: Mapping[str, str], otherwise: tuple[str, ...]) -> tuple[str, ...]:
    text = _override(agent, what, environ)
    if text is None:
        return otherwise
    if not text.lstrip().startswith(("[", "{", '"')):
        return tuple(split(text))
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{_variable(agent, what)} in the environment must be names such as a,b or a JSON list of texts such as "
            f'["a", "b"]: {error}'
        ) from error


def _number(agent: str, what: str, environ: Mapping[str, str], otherwise: float | None) -> float | None:
    text = _override(agent, what, environ)
    if text is None:
        return otherwise
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"{_variable(agent, what)} in the environment must be a number, not '{text}'") from None


def _override(agent: str, what: str, environ: Mapping[str, str]) -> str | None:
    """`<AGENT>_<WHAT>` of the environment (`CODER_MODEL`), if it is set and not empty."""
    return environ.get(_variable(agent, what)) or None


def _variable(agent: str, what: str) -> str:
    return f"{agent.upper().replace('-', '_').replace(' ', '_')}_{what}"


def _from_environ(agent: str, environ: Mapping[str, str]) -> dict[str, str]:
    text = _override(agent, "VARIABLES", environ)
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{_variable(agent, 'VARIABLES')} in the environment must be a JSON object of texts: {error}"
        ) from error
