"""Agent Skills for `callboard skills`: list, description, checks, and a first file."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from ...actors.io.directories import config_dir as configured
from ...actors.work.skills import FoundSkill, FoundSkills, skill_text
from ...actors.work.trust import Trusted, offers, workspace_of
from ...protocol.errors import Conflict, NotFound, UsageError
from ...protocol.problems import Problem, did_you_mean, errors_in
from ...protocol.skill import FILE, NAMES, read_skill
from ..render.text import columns, counted, json_object, one_line, safe

_TITLES = {"workspace": "of this directory", "user": "yours", "built in": "built in (agents name them in their files)"}
_NEW = """\
---
name: {name}
description: Purpose of the skill, and when to use it. Agents select skills by this line.
---

# {title}

Describe the steps, common mistakes, and an example.
Other files of the directory (`scripts/`, `references/`) are read when the text names them.
"""


def list_skills(config_dir: str | None, *, as_json: bool) -> str:
    """Return all skills with their origins, and the problems of skills, as text or JSON.

    Skills of the working directory are listed only if it is trusted.
    """
    base, trusted = _base(config_dir), _workspace()
    skills = FoundSkills(trusted, base, os.environ)
    found = list(skills.by_name.values())
    if as_json:
        return json_object(skills=[_skill_as_json(each) for each in found], problems=msgspec.to_builtins(skills.broken))
    lines: list[str] = []
    for origin, title in _TITLES.items():
        rows = [[safe(each.skill.name), one_line(each.skill.description)] for each in found if each.origin == origin]
        if rows or origin == "user":
            lines += [title, *(columns(rows) or ["  none yet (to make one: callboard skills new NAME --user)"])]
    lines += _untrusted(trusted)
    problems = [*skills.broken, *(problem for each in found for problem in each.problems)]
    lines += ["", "problems", *(f"  {safe(str(each))}" for each in problems)] if problems else []
    return "\n".join(lines) + "\n"


def show_skill(name: str, config_dir: str | None, *, as_json: bool) -> str:
    """Return a skill as an agent reads it, with its files, as text or JSON.

    Raises:
        NotFound: there is none.
    """
    skills = FoundSkills(_workspace(), _base(config_dir), os.environ)
    found = skills.by_name.get(name)
    if found is None:
        hint = did_you_mean(name, skills.by_name) or "callboard skills list"
        raise NotFound(f"there is no skill '{name}'; {hint}")
    if as_json:
        return json_object(**_skill_as_json(found), text=found.skill.text, files=skills.files(name))
    about = [["file", safe(found.skill.file)], ["origin", _TITLES[found.origin]]]
    others = [(key, getattr(found.skill, key)) for key in ("license", "compatibility")]
    about += [[key, one_line(value)] for key, value in others if value]
    lines = [safe(found.skill.name), f"  {safe(found.skill.description)}", "", *columns(about), ""]
    return "\n".join([*lines, safe(skill_text(skills, found)), ""])


def validate_skills(directories: Sequence[Path], *, strict: bool) -> int:
    """Check skills and print their problems; return 2 if one of them has errors, else 0.

    Args:
        strict: treat warnings as errors.
    """
    wrong = 0
    for given in directories:
        directory = given.parent if given.name in NAMES else given
        problems = _checked(directory, strict=strict)
        wrong += bool(errors_in(problems))
        click.echo("\n".join(safe(str(each)) for each in problems) or f"{safe(str(directory))}: valid")
    if wrong:
        click.echo(f"{counted(wrong, 'skill')} of {len(directories)} not valid", err=True)
    return 2 if wrong else 0


def new_skill(name: str, config_dir: str | None, *, of_user: bool) -> str:
    """Write the SKILL.md of a new skill; return a message for the user.

    Raises:
        UsageError: the name is invalid.
        Conflict: there is a file or directory of that name.
    """
    folder = _base(config_dir) / "skills" if of_user else Path(".agents") / "skills"
    directory = folder / name
    text = _NEW.format(name=name, title=name.replace("-", " ").capitalize())
    skill, problems = read_skill(text, str(directory / FILE), str(directory))
    # `read_skill` knows only the last part of the path, and `../../x` would be written outside of the folder.
    if skill is None or "/" in name:
        said = problems[0].message if problems else "`name` has characters other than letters, digits and hyphens"
        raise UsageError(f"'{name}' can't be the name of a skill: {said}")
    if directory.exists():
        raise Conflict(f"{directory} exists already")
    directory.mkdir(parents=True)
    (directory / FILE).write_text(text)
    then = "" if of_user else "\nAgents read it when you trust this directory: callboard trust"
    return f"{directory / FILE}: describe the skill there, then run callboard skills validate {directory}{then}\n"


def skill_names(config_dir: str | None) -> list[str]:
    """Return names for completion: the user's and built-in skills, none of the working directory."""
    return list(FoundSkills(None, _base(config_dir), os.environ).by_name)


def _checked(directory: Path, *, strict: bool) -> list[Problem]:
    def problem(message: str) -> list[Problem]:
        return [Problem(severity="error", file=str(directory), code="no_skill", message=message)]

    if not directory.exists():
        return problem("there is no such directory")
    if not directory.is_dir():
        return problem("it is not a directory")
    file = next((directory / name for name in NAMES if (directory / name).is_file()), None)
    if file is None:
        return problem(f"it has no {FILE}")
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return problem(f"{file.name} can't be read: {error}")
    # `read_skill` compares the skill's name with the directory's, for which `.` and `..` do not serve.
    resolved = directory if unicodedata.normalize("NFC", directory.name) not in ("", ".", "..") else directory.resolve()
    return read_skill(text, str(file), str(resolved), strict=strict)[1]


def _untrusted(trusted: Trusted | None) -> list[str]:
    if trusted is None or trusted.is_trusted or "skill" not in (there := offers(trusted, Path.cwd())):
        return []
    return ["", f"This directory has more ({there}), which agents read when you trust it: callboard trust --show"]


def _skill_as_json(found: FoundSkill) -> dict[str, object]:
    skill = found.skill
    return {
        "name": skill.name,
        "description": skill.description,
        "origin": found.origin,
        "file": skill.file,
        "allowed_tools": list(skill.allows),
        "problems": msgspec.to_builtins(found.problems),
    }


def _base(config_dir: str | None) -> Path:
    return configured(config_dir, os.environ)[0]


def _workspace() -> Trusted | None:
    return workspace_of(Path.cwd(), os.environ)
