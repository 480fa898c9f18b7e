"""An Agent Skill: a directory with a `SKILL.md`, by the open standard (agentskills.io, its specification).

    ---
    name: pdf-processing                 # like the directory; lower case, digits, single hyphens; at most 64
    description: Extracts text from PDF files. Use it when ...       # at most 1,024 characters
    allowed-tools: Bash(git:*) Read      # tools that may be called while the skill is followed; default: all
    ---
    The instructions. An agent reads them when its task matches the description.

A breach of the standard is an error here only if it hides the purpose of the skill from the model. Every other breach
is a warning, because other programs are lax about names: Coyote's skills have no names, and skills in plugins of
Claude Code may have titles. A skill is known by the name of its directory if its own `name` is missing, invalid or
different.

With `strict` (used by `callboard skills validate --strict`) warnings are errors. Then the same skills are valid as
with the validator of the standard.
"""

from __future__ import annotations

import unicodedata
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from .other_programs import patterns_in
from .problems import Problem, Severity, errors_in
from .reading import Reading, in_file_order
from .schema import no_effect
from .yaml_tree import Source, parse_mapping, split_front_matter

FILE = "SKILL.md"
# The validator of the standard (skills-ref) accepts both.
NAMES = (FILE, "skill.md")
# Limits of the Agent Skills specification.
LONGEST_NAME, LONGEST_DESCRIPTION, LONGEST_COMPATIBILITY = 64, 1024, 500
MOST_CHARACTERS = 500_000
"""Longest SKILL.md that is read."""

_TEXT = Meta(extra={"number_too": True}, extra_json_schema={"x-number-too": True})


class SkillFile(msgspec.Struct, frozen=True, kw_only=True, rename={"allowed_tools": "allowed-tools"}):
    """The front matter of a `SKILL.md`."""

    name: Annotated[str, _TEXT] = ""
    description: Annotated[str, _TEXT]
    license: Annotated[str, _TEXT] = ""
    compatibility: Annotated[str, _TEXT] = ""
    metadata: dict[str, Any] = {}
    allowed_tools: str | tuple[str, ...] = ""
    enabled_tools: Annotated[
        str | tuple[str, ...], no_effect("a skill does not add tools; name them in `global_tools` of the agent")
    ] = ""
    enabled_mcp_servers: Annotated[
        str | tuple[str, ...], no_effect("a skill does not add servers; name them in `mcp_servers` of the agent")
    ] = ""


class Skill(SkillFile, frozen=True, kw_only=True):
    """A skill that was read.

    Attributes:
        text: its instructions.
        directory: path of its directory.
        file: path of its `SKILL.md`.
    """

    text: str
    directory: str
    file: str

    @property
    def allows(self) -> tuple[str, ...]:
        """Return the patterns of `allowed-tools`; an empty result allows every tool."""
        given = self.allowed_tools
        return (
            patterns_in(given)
            if isinstance(given, str)
            else tuple(part for text in given for part in patterns_in(text))
        )


def read_skill(text: str, file: str, directory: str, *, strict: bool = False) -> tuple[Skill | None, list[Problem]]:
    """Return the skill in the text of a `SKILL.md`, and all problems by line. The skill is None if a problem is an
    error.

    Args:
        file: name of the file in the problems.
        directory: path of the directory of the skill.
        strict: treat warnings as errors.
    """
    source = Source(file)
    if len(text) > MOST_CHARACTERS:
        expected = f"at most {MOST_CHARACTERS} characters; put the rest into files beside it"
        return None, [source.problem("error", "too_long", f"a skill of {len(text)} characters", expected=expected)]
    halves = split_front_matter(text.removeprefix("\ufeff"))
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
            entry = root.entries.get(key)
            line, column = (halves.line + 1, 1) if entry is None else (entry.line, entry.column)
            problems.append(msgspec.structs.replace(told, line=line, column=column, key=key))
    problems = in_file_order(problems, strict=strict)
    if errors_in(problems):
        return None, problems
    return msgspec.structs.replace(skill, name=known_as(skill.name, directory)), problems


def known_as(name: str, directory: str) -> str:
    """Return the name that agents use for a skill: the name of its directory if there is one, else its own.

    It is in lower case, with hyphens between its words, and cut to `LONGEST_NAME` characters.
    """
    called = unicodedata.normalize("NFKC", directory.rstrip("/").rpartition("/")[2])
    for each in (called, unicodedata.normalize("NFKC", name)):
        slug = "-".join("".join(sign if sign.isalnum() else " " for sign in each.lower()).split())
        if slug:
            return slug[:LONGEST_NAME]
    return name


def _of_standard(skill: Skill, directory: str) -> list[tuple[Severity, str, str]]:
    """Return the breaches of the standard that types can't express, as severity, key and message."""
    found: list[tuple[Severity, str, str]] = []
    called = directory.rstrip("/").rpartition("/")[2]
    # As in skills-ref. Some file systems store names decomposed, so a directory's name may differ from the same name in
    # a file.
    name = unicodedata.normalize("NFKC", skill.name.strip())
    if not name:
        found.append(("warning", "name", f"there is no `name`, so the skill is called '{known_as('', directory)}'"))
    if len(name) > LONGEST_NAME:
        found.append(("warning", "name", f"`name` has {len(name)} characters, and may have {LONGEST_NAME}"))
    if name != name.lower():
        found.append(("warning", "name", f"`name` must be lowercase: '{name.lower()}'"))
    if name.startswith("-") or name.endswith("-"):
        found.append(("warning", "name", "`name` begins or ends with a hyphen"))
    if "--" in name:
        found.append(("warning", "name", "`name` has two hyphens in a row"))
    if not all(each.isalnum() or each == "-" for each in name):
        found.append(("warning", "name", "`name` has characters other than letters, digits and hyphens"))
    if name and name != unicodedata.normalize("NFKC", called):
        found.append(
            (
                "warning",
                "name",
                f"`name` is '{name}', but its directory is called '{called}', which is used; make them equal",
            )
        )
    if not skill.description.strip():
        found.append(("error", "description", "`description` is empty"))
    for key, most in (("description", LONGEST_DESCRIPTION), ("compatibility", LONGEST_COMPATIBILITY)):
        if (length := len(getattr(skill, key))) > most:
            found.append(("warning", key, f"`{key}` has {length} characters, and may have {most}"))
    return found
