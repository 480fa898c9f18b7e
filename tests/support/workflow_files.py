"""One good workflow file, what may be named in it, and mistakes that tests put into it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from callboard.protocol.workflow import Known, Mode, read_workflow

FILES = Path(__file__).parents[1] / "fixtures" / "workflows"
GOOD = (FILES / "newsroom.yaml").read_text(encoding="utf-8")
KNOWN = Known(
    conditions=frozenset({"is_polite"}),
    processors=frozenset({"shout"}),
    tools={"weather": frozenset({"get_weather", "get_wind"})},
    providers=frozenset({"openai", "gemini", "callboard"}),
)


@dataclass
class Mistake:
    """`old`, which the good file has once, becomes `new`.

    Attributes:
        code: of the problem that has to be found.
        line: what stands on the line it names.
        mend: what it says of the way to mend it.
        also: the codes of what follows from the mistake.
    """

    old: str
    new: str
    code: str
    line: str
    mend: str
    severity: Literal["error", "warning"] = "error"
    compat: Mode = "standard"
    also: tuple[str, ...] = ()


def check(mistake: Mistake) -> None:
    """The mistake is found on its line with the way to mend it, and nothing else is said."""
    assert GOOD.count(mistake.old) == 1
    text = GOOD.replace(mistake.old, mistake.new)
    workflow, problems = read_workflow(text, "newsroom.yaml", compat=mistake.compat, known=KNOWN)
    assert sorted(problem.code for problem in problems) == sorted([mistake.code, *mistake.also])
    (found, *_) = [problem for problem in problems if problem.code == mistake.code]
    assert (found.file, found.severity) == ("newsroom.yaml", mistake.severity)
    assert mistake.line in text.splitlines()[found.line - 1]
    assert found.column > 0
    assert mistake.mend in f"{found.hint} {found.expected}"
    assert (workflow is None) == any(problem.severity == "error" for problem in problems)


def keys_of(schema: Any) -> set[str]:
    """Every key a file may have anywhere, by its JSON Schema."""
    if isinstance(schema, list):
        return set().union(*(keys_of(item) for item in schema))
    if not isinstance(schema, dict):
        return set()
    own = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
    return own.union(*(keys_of(value) for value in schema.values()))
