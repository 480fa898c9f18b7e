"""Files of cases: `tests.yaml` next to an agent, and `tests/*.yaml` in its directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from .....protocol.cases import Case, Cases, Defaults, read_cases
from .....protocol.errors import InvalidFile, UsageError
from .....protocol.problems import Problem, errors_in
from ...finding import find

NAME = "tests.yaml"
DIRECTORY = "tests"
AGENTS = ("graph.yaml", "config.yaml", "index.yaml")
"""Files that make a directory an agent's."""

_PASSED_OVER = {"node_modules", "__pycache__", "site-packages"}


class CaseFile(msgspec.Struct, frozen=True):
    """File of cases.

    Attributes:
        file: path as the user would type it.
        target: default target of its cases.
        cases: contents of the file.
    """

    file: Path
    target: str
    cases: Cases

    def settled(self, case: Case) -> Case:
        """Return a case with the defaults of its file."""
        defaults = self.cases.defaults
        values = {
            name: getattr(defaults, name)
            for name in Defaults.__struct_fields__
            if getattr(case, name) in (None, (), {}) and getattr(defaults, name) not in (None, (), {})
        }
        variables = {**defaults.variables, **case.variables}
        return msgspec.structs.replace(case, **{**values, "variables": variables})


def find_cases(paths: Sequence[str], config_dir: Path) -> list[CaseFile]:
    """Return the files of cases. Blocking.

    Args:
        paths: files, directories searched recursively, or names of agents; none for the working directory.

    Raises:
        UsageError: there are no cases.
        InvalidFile: a file has errors; `problems` has the errors of all files.
    """
    files: dict[Path, None] = {}
    for path in paths or ["."]:
        there = list(_files(path, config_dir))
        if not there:
            raise UsageError(
                f"there are no cases in '{path}': write them into {NAME} beside an agent, or into {DIRECTORY}/*.yaml in"
                " its directory"
            )
        files.update(dict.fromkeys(there))
    problems: list[Problem] = []
    read: list[CaseFile] = []
    for file in files:
        cases, of_file = read_cases(_text(file), str(file))
        problems += of_file
        if cases is not None:
            read.append(CaseFile(file, str(_agent_of(file)), cases))
    if errors_in(problems):
        raise InvalidFile("\n".join(map(str, problems)), problems)
    return read


def _files(path: str, config_dir: Path) -> Iterator[Path]:
    place = Path(path).expanduser()
    if place.is_file():
        yield place
    elif place.is_dir():
        yield from _below(place)
    else:
        try:
            yield from _below(find(path, config_dir=config_dir).directory)
        except UsageError as error:
            raise UsageError(f"there is no file, directory or agent '{path}'") from error


def _below(top: Path) -> Iterator[Path]:
    for here, directories, names in os.walk(top):
        directories[:] = sorted(each for each in directories if not each.startswith(".") and each not in _PASSED_OVER)
        place = Path(here)
        if NAME in names:
            yield place / NAME
        if any(name in names for name in AGENTS) and DIRECTORY in directories:
            yield from sorted((place / DIRECTORY).glob("*.yaml"))


def _agent_of(file: Path) -> Path:
    """Return the directory of the agent that a file of cases belongs to."""
    directory = file.absolute().parent
    if file.name != NAME and directory.name == DIRECTORY:
        return directory.parent
    return directory


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{file} can't be read: {why}") from error
