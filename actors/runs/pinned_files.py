"""Pinned files: the definition files that a durable run resumes with, as they were when it began.

The target's file is stored in the first row of the run. The file of an agent that the run calls is stored in a row
written when that file was first read (`protocol.journal.Definition`). Later edits of these files have no effect on
the run.

Files that are executed in place (scripts, tool files, files of functions) are not stored, because a repaired script
is a usual reason to resume a run. A definition has a checksum of each of them, so that `check_files` can report a
change.
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
from ..work.journal.run_journal import CALLED, CannotGoOn, JournaledRun, RunPast
from .finding import TargetFile, find
from .loading import is_made
from .target import Loaded, LoopAgent, read

if TYPE_CHECKING:
    from ..work.tools.registry import ToolRegistry
    from .loading import RunCallbacks
    from .prepared import Prepared
    from .root import Root

GONE = "gone"
"""Value of `Definition.sums` for a file that cannot be read."""


def has_file(request: RunRequest, hooks: RunCallbacks) -> bool:
    """Return whether a run's target is in a file. An agent made by a program is in no file."""
    if isinstance(request.target, Agent) or request.in_role:
        return False
    return not is_made(hooks.loaded)


def definition_of(request: RunRequest, hooks: RunCallbacks, root: Root, prepared: Prepared) -> Definition | None:
    """Return the file of a run's target as it is now, or None if the target is in no file. Reads files.

    Raises:
        UsageError: the file cannot be read.
    """
    if not has_file(request, hooks):
        return None
    # A target that is not a text is an `Agent`, and `has_file` has excluded those.
    assert isinstance(request.target, str)
    loaded = hooks.loaded
    found = find(request.target if loaded is None else loaded.file, config_dir=root.config_dir)
    directory = None if loaded is None else loaded.directory
    return _definition(found, directory or found.directory, prepared)


def called(agent: Loaded, prepared: Prepared) -> Definition:
    """Return the file of an agent that a run calls. Reads files, and raises as `definition_of` does."""
    assert agent.directory is not None
    return _definition(find(agent.file), agent.directory, prepared)


def _definition(found: TargetFile, directory: Path, prepared: Prepared) -> Definition:
    file = os.path.abspath(found.file)  # noqa: PTH100 - no link is followed
    return Definition(
        found.dialect, file, str(directory.absolute()), found.text, prepared.parts, _sums(prepared.in_place)
    )


def called_in(kept: JournaledRun) -> dict[str, Definition]:
    """Return the agents that earlier incarnations of a run called, by the name passed to `note_called`."""
    return {
        name.removeprefix(CALLED): decode_value(value, Definition)
        for name, value in kept.once.items()
        if name.startswith(CALLED)
    }


def note_called(kept: JournaledRun, name: str, definition: Definition) -> None:
    """Record in the journal that a run calls an agent by this name, with this definition."""
    kept.note_once(f"{CALLED}{name}", definition)


def loaded_of(began: Began, config_dir: Path, registry: ToolRegistry | None = None) -> Loaded | None:
    """Return the agent that a run began with, or None if it is not stored.

    Raises:
        InvalidFile: the stored file has errors when it is read in this process.
    """
    if began.definition is None:
        return None if began.agent is None else LoopAgent.of(began.agent)
    loaded = load_again(began.definition, began.request, config_dir, registry, functions=began.functions)
    # The row has the agent as the run began with it, for example with the sampling options of its session.
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
    """Return the agent of a definition. Raises as `loaded_of` does."""
    found = TargetFile(
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
    """Return a run with its paths below the directory `old` of another machine replaced by paths below `new` on this
    one.
    """
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
    """Return a first row with its paths below the directory `old` replaced by paths below `new` on this machine."""
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
    # `os.sep` is part of the test: without it `/srv/work` would also match `/srv/workshop`.
    return new + path.removeprefix(old) if path == old or path.startswith(old + os.sep) else path


def check_files(run: str, definitions: Iterable[Definition | None], *, strict: bool) -> tuple[Problem, ...]:
    """Return a warning for each file that is executed in place and has changed since the run began. Reads the files.

    Raises:
        CannotGoOn: a file has changed, and the run is `strict`.
    """
    was = {file: sum for each in definitions if each is not None for file, sum in each.sums.items()}
    changed = [file for file, now in _sums(map(Path, was)).items() if now != was[file]]
    if strict and changed:
        raise CannotGoOn(
            f"{run} can't be resumed with --strict: {', '.join(changed)} changed since the run began; "
            "use --with-changes to resume it with the current files"
        )
    return tuple(
        Problem(
            severity="warning",
            code="changed_since",
            message="the file has changed since the run began, and its current version is executed",
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
    """Return a run's history without its working directory, so that it runs in that of the resuming process.

    Another machine may not have the directory in which the run began.
    """
    began = past.began
    began = msgspec.structs.replace(began, request=msgspec.structs.replace(began.request, cwd=None))
    return msgspec.structs.replace(past, began=began)
