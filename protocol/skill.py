"""An Agent Skill: a directory with a `SKILL.md`, by the open standard (agentskills.io, its specification).

    ---
    name: pdf-processing                 # like the directory; lower case, digits, single hyphens; at most 64
    description: Extracts text from PDF files. Use it when ...       # at most 1,024 characters
    allowed-tools: Bash(git:*) Read      # what may be called while it is followed; all if it is not there
    ---
    The instructions, which are read when an agent wants to do what the skill is for.

What the standard calls an error keeps a skill from being used where nobody could call it by its name or know what it
is for; everything else is a warning. With `strict`, as `callboard skills validate` reads, warnings are errors: then
the same skills are valid as with the standard's own validator.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from .front_matter import parted
from .others_names import patterns_in
from .problems import Problem, Severity, errors_in
from .reading import Reading, in_file_order
from .source import Source, parse_mapping

FILE = "SKILL.md"
NAMES = (FILE, "skill.md")
LONGEST_NAME, LONGEST_DESCRIPTION, LONGEST_COMPATIBILITY = 64, 1024, 500
MOST_CHARACTERS = 500_000
"""A SKILL.md that is longer is none."""

_TEXT = Meta(extra={"number_too": True}, extra_json_schema={"x-number-too": True})


class SkillFile(msgspec.Struct, frozen=True, kw_only=True, rename={"allowed_tools": "allowed-tools"}):
    """The front matter of a `SKILL.md`."""

    name: Annotated[str, _TEXT]
    description: Annotated[str, _TEXT]
    license: Annotated[str, _TEXT] = ""
    compatibility: Annotated[str, _TEXT] = ""
    metadata: dict[str, Any] = {}
    allowed_tools: str | tuple[str, ...] = ""


class Skill(SkillFile, frozen=True, kw_only=True):
    """A skill that was read.

    Attributes:
        text: its instructions.
        directory: where it lies.
        file: its `SKILL.md`.
    """

    text: str
    directory: str
    file: str

    @property
    def allows(self) -> tuple[str, ...]:
        """The patterns of `allowed-tools`; none allows everything."""
        given = self.allowed_tools
        return (
            patterns_in(given)
            if isinstance(given, str)
            else tuple(part for text in given for part in patterns_in(text))
        )


def read_skill(text: str, file: str, directory: str, *, strict: bool = False) -> tuple[Skill | None, list[Problem]]:
    """The skill of a `SKILL.md`'s text, and all problems by line; None when one of them is an error.

    Args:
        file: how problems call the text.
        directory: where it lies.
        strict: warnings are errors.
    """
    source = Source(file)
    if len(text) > MOST_CHARACTERS:
        expected = f"at most {MOST_CHARACTERS} characters; put the rest into files beside it"
        return None, [source.problem("error", "too_long", f"a skill of {len(text)} characters", expected=expected)]
    halves = parted(text.removeprefix("\ufeff"))
    if not halves.head.strip():
        what = "the front matter does not end" if halves.open else "the file has no front matter"
        hint = "begin it with `---`, `name: ...`, `description: ...`, `---`"
        return None, [source.problem("error", "no_front_matter", what, hint=hint)]
    root, problems = parse_mapping("\n" * halves.line + halves.head, file)
    if root is None:
        return None, in_file_order(problems, strict=strict)
    reading = Reading(file)
    given = {"text": halves.body.strip(), "directory": directory, "file": file}
    skill = reading.fill(Skill, root, what="a skill", given=given, hidden=("text", "directory", "file"))
    problems += reading.problems
    if not errors_in(problems):
        for severity, key, message in _of_standard(skill, directory):
            told = source.problem(severity, f"bad_{key}", message)
            entry = root.entries[key]
            problems.append(msgspec.structs.replace(told, line=entry.line, column=entry.column, key=key))
    problems = in_file_order(problems, strict=strict)
    return (None if errors_in(problems) else skill), problems


def _of_standard(skill: Skill, directory: str) -> list[tuple[Severity, str, str]]:
    """What the standard forbids and types do not say: severity, key, message."""
    found: list[tuple[Severity, str, str]] = []
    called = directory.rstrip("/").rpartition("/")[2]
    name = unicodedata.normalize("NFKC", skill.name.strip())
    if not name:
        found.append(("error", "name", "`name` is empty"))
    if len(name) > LONGEST_NAME:
        found.append(("error", "name", f"`name` has {len(name)} characters, and may have {LONGEST_NAME}"))
    if name != name.lower():
        found.append(("error", "name", f"`name` must be lowercase: '{name.lower()}'"))
    if name.startswith("-") or name.endswith("-"):
        found.append(("error", "name", "`name` begins or ends with a hyphen"))
    if "--" in name:
        found.append(("error", "name", "`name` has two hyphens in a row"))
    if not all(each.isalnum() or each == "-" for each in name):
        found.append(("error", "name", "`name` has characters other than letters, digits and hyphens"))
    if name and name != unicodedata.normalize("NFKC", called):
        found.append(("error", "name", f"`name` is '{name}', and its directory is '{called}'; they must be alike"))
    if not skill.description.strip():
        found.append(("error", "description", "`description` is empty"))
    for key, most in (("description", LONGEST_DESCRIPTION), ("compatibility", LONGEST_COMPATIBILITY)):
        if (length := len(getattr(skill, key))) > most:
            found.append(("warning", key, f"`{key}` has {length} characters, and may have {most}"))
    return found
