"""The files that a durable run goes on with: those that it has begun with, whatever has become of them since.

Its own file is in its first row, that of an agent that it calls in a row from when it was first read
(`protocol.journal.Definition`). Files that are executed in place (scripts, tool files, files of functions) are not
kept: a mended script is why people go on with a run. Of those a definition has a sum, so that a change is told.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...protocol.agent import Agent
from ...protocol.journal import Began, Definition, decode_value, encode_value
from ...protocol.problems import Problem
from ...protocol.requests import RunRequest
from ..work.journal.of_run import CALLED, CannotGoOn, OfRun, RunPast
from .finding import Found, find
from .target import Loaded, LoopAgent, read

if TYPE_CHECKING:
    from ..work.tools.registry import ToolRegistry
    from .loading import Hooks
    from .prepared import Prepared
    from .root import Root

GONE = "gone"
"""In place of the sum of a file that can't be read."""


def has_file(request: RunRequest, hooks: Hooks) -> bool:
    """Whether a run's target is in a file; an agent that was made by a program is in none."""
    if isinstance(request.target, Agent) or request.in_role:
        return False
    return not (isinstance(hooks.loaded, LoopAgent) and hooks.loaded.directory is None)


def definition_of(request: RunRequest, hooks: Hooks, root: Root, prepared: Prepared) -> Definition | None:
    """The file of a run's target, as it is now; None if it is in none. Reads files.

    Raises:
        UsageError: it can't be read.
    """
    if not has_file(request, hooks):
        return None
    assert isinstance(request.target, str)
    loaded = hooks.loaded
    found = find(request.target if loaded is None else loaded.file, config_dir=root.config_dir)
    directory = None if loaded is None else loaded.directory
    return _definition(found, directory or found.directory, prepared)


def called(agent: Loaded, prepared: Prepared) -> Definition:
    """As `definition_of`, of an agent that a run calls."""
    assert agent.directory is not None
    return _definition(find(agent.file), agent.directory, prepared)


def _definition(found: Found, directory: Path, prepared: Prepared) -> Definition:
    file = os.path.abspath(found.file)  # noqa: PTH100 - no link is followed
    return Definition(
        found.dialect, file, str(directory.absolute()), found.text, prepared.parts, _sums(prepared.in_place)
    )


def called_in(kept: OfRun) -> dict[str, Definition]:
    """The agents that earlier lives of a run have called, by the name that `note_called` was given."""
    return {
        name.removeprefix(CALLED): decode_value(value, Definition)
        for name, value in kept.once.items()
        if name.startswith(CALLED)
    }


def note_called(kept: OfRun, name: str, definition: Definition) -> None:
    """Keep that a run calls an agent by this name, which has this file."""
    kept.note_once(f"{CALLED}{name}", definition)


def loaded_of(began: Began, config_dir: Path, registry: ToolRegistry | None = None) -> Loaded | None:
    """The agent that a run began with; None if it is not kept.

    Raises:
        InvalidFile: its file has errors, seen from here.
    """
    if began.definition is None:
        return None if began.agent is None else LoopAgent.of(began.agent)
    loaded = load_again(began.definition, began.request, config_dir, registry, functions=began.functions)
    if began.agent is not None and isinstance(loaded, LoopAgent):
        loaded = msgspec.structs.replace(loaded, agent=began.agent)
    return loaded


def load_again(
    definition: Definition,
    request: RunRequest,
    config_dir: Path,
    registry: ToolRegistry | None,
    functions: Iterable[str] = (),
) -> Loaded:
    """The agent of a definition. Raises as `loaded_of` does."""
    found = Found(
        dialect=definition.dialect,
        file=definition.file,
        directory=Path(definition.directory),
        text=definition.text,
        parts=definition.parts,
    )
    return read(
        found,
        config_dir,
        strict=request.strict,
        compat=request.compat,
        functions=tuple(functions),
        registry=registry,
        variables=request.variables,
    )


def relocated(past: RunPast, old: str, new: str) -> RunPast:
    """A run whose files lay in the directory `old` on another machine, and lie in `new` on this one."""
    if old == new:
        return past
    once = {
        name.replace(f" of {old}", f" of {new}"): encode_value(_moved(decode_value(value, Definition), old, new))
        if name.startswith(CALLED)
        else value
        for name, value in past.once.items()
    }
    return msgspec.structs.replace(past, began=began_in(past.began, old, new), once=once)


def began_in(began: Began, old: str, new: str) -> Began:
    """The first row of a run whose files lay in the directory `old`, and lie in `new` on this machine."""
    assert isinstance(began.request.target, str)
    return msgspec.structs.replace(
        began,
        request=msgspec.structs.replace(began.request, target=_there(began.request.target, old, new)),
        definition=None if began.definition is None else _moved(began.definition, old, new),
    )


def _moved(each: Definition, old: str, new: str) -> Definition:
    return msgspec.structs.replace(
        each,
        file=_there(each.file, old, new),
        directory=_there(each.directory, old, new),
        parts={_there(path, old, new): text for path, text in each.parts.items()},
        sums={_there(path, old, new): sum for path, sum in each.sums.items()},
    )


def _there(path: str, old: str, new: str) -> str:
    return new + path.removeprefix(old) if path == old or path.startswith(old + os.sep) else path


def check_files(run: str, definitions: Iterable[Definition | None], *, strict: bool) -> tuple[Problem, ...]:
    """What is to be said of files that are executed in place and are others than they were. Reads them.

    Raises:
        CannotGoOn: there are such, and the run is `strict`.
    """
    was = {file: sum for each in definitions if each is not None for file, sum in each.sums.items()}
    changed = [file for file, now in _sums(map(Path, was)).items() if now != was[file]]
    if strict and changed:
        raise CannotGoOn(
            f"{run} can't go on with --strict: {', '.join(changed)} changed since it was begun; with --with-changes it "
            "goes on with today's files"
        )
    return tuple(
        Problem(
            severity="warning",
            code="changed_since",
            message="it has changed since the run was begun, and is executed as it is today",
            file=file,
        )
        for file in changed
    )


def _sums(files: Iterable[Path]) -> dict[str, str]:
    return {str(file): _sum(file) for file in files}


def _sum(file: Path) -> str:
    try:
        return hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return GONE


def without_cwd(past: RunPast) -> RunPast:
    """The past of a run that works where the process does that goes on with it: another machine may not have the
    directory that it began in."""
    began = past.began
    began = msgspec.structs.replace(began, request=msgspec.structs.replace(began.request, cwd=None))
    return msgspec.structs.replace(past, began=began)
