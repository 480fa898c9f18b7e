"""Agent variables: values the user may set from outside, by name.

In the order of who wins: what the caller gave (`--var`), `<AGENT>_VARIABLES` in the environment (a JSON object), the
default in the file. A variable that has none of these is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ..protocol.errors import UsageError
from ..protocol.graph.model import Variable
from ..protocol.problems import did_you_mean


def resolve_variables(
    agent: str, declared: Iterable[Variable], given: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Every declared variable's value.

    Raises:
        UsageError: a value was given for a variable that is not declared, or a variable has no value.
    """
    declared = tuple(declared)
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
    if missing:
        lines = "\n".join(f"  - {variable.name}: {variable.description.strip()}" for variable in missing)
        raise UsageError(
            f"The following agent variables are required:\n{lines}\n"
            f"Set them with --var {missing[0].name}=VALUE, or give them a default in the file."
        )
    return values


def override(agent: str, what: str, environ: Mapping[str, str]) -> str | None:
    """`<AGENT>_<WHAT>` of the environment (`CODER_MODEL`), if it is set and not empty."""
    return environ.get(f"{agent.upper().replace('-', '_').replace(' ', '_')}_{what}") or None


def _from_environ(agent: str, environ: Mapping[str, str]) -> dict[str, str]:
    text = override(agent, "VARIABLES", environ)
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise UsageError(
            f"the environment's variables for agent '{agent}' must be a JSON object of texts: {error}"
        ) from error
