"""Snapshots before file changes: a tool stores the current content and records the change before it changes a file.

    with keeper.writes(place, directory, data):
        replace(place, directory, old, data)

The record is written first. A process that is killed right after the change has therefore already recorded it. If the
change fails, a further line of the record voids the first.

Recording never fails the tool. If a content cannot be stored, because the disk is full or the file too large, the
record marks it as lost and the tool continues.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.events import FileChanged
from .....protocol.requests import ID
from ....io.secret_redaction import hidden, names_in
from ...journal.actor_journal import scope_of
from ...journal.unknown_outcome import key_of
from ..builtin.allowed_paths import AllowedPath, Setting
from .diff import MOST_COUNTED, Diff, unified
from .store import (
    MOST_OF_ONE,
    ChangeStore,
    PathChange,
    PathState,
    encoded,
    place_of,
    present,
    printable_path,
    same,
    seen,
    sha_of,
    store_of,
)

if TYPE_CHECKING:
    from .....supervisors import Actor

MOST_OF_TREE = 64 * 1024 * 1024
MOST_FILES = 10_000
"""Maximum bytes and files of a directory that is removed; nothing is stored of a larger one."""

MOST_OF_DIFF = 8_000
MOST_DIFF_LINES = 200
"""Maximum characters and lines of the diff in an event."""

log = logging.getLogger("callboard.changes")


class ChangeKeeper:
    """Recorder of the file changes of one tool call. Its methods block.

    Args:
        store: the store; None to store nothing.
        actor: path of the call's actor, which begins with the run's id.
        tool: its name.
        tells: collect an event for each change.
        call: key of the call, the same in all incarnations of a durable run.

    Attributes:
        told: the collected events, for `emit_events`.
    """

    def __init__(
        self, store: ChangeStore | None, actor: str, tool: str, *, tells: bool = False, call: str = ""
    ) -> None:
        self.told: list[FileChanged] = []
        self._tells = tells
        self._store = store
        self._actor = actor
        self._tool = tool
        self._call = call
        self._run = run_of(actor)

    @contextlib.contextmanager
    def writes(self, place: AllowedPath, above: int, data: bytes, made: Sequence[int] = ()) -> Iterator[None]:
        """Record that the block gives the file this content. An exception in the block voids the record.

        `made` are the depths of the directories created for it.
        """
        if not self._run:
            yield
            return
        before, content = self._seen(above, place.name)
        mode = 0o644 if before is None else before.mode
        changed = self._change(place, place.parts, before, PathState(sha=sha_of(data), size=len(data), mode=mode))
        changed = _with_secrets(changed, data)
        self._keep([*self._directories(place, made), (changed, content)])
        try:
            yield
        except BaseException:  # Replacing a file is atomic: after any exception nothing was written.
            self._void([changed])
            raise
        if self._tells:
            # The earlier content was too large or unreadable, so no diff is possible.
            unknown = before is not None and content is None
            self._announced(changed, _UNKNOWN if unknown else _compared(changed, content, data))

    def makes(self, place: AllowedPath, made: Sequence[int]) -> None:
        """Record that directories were created, at these depths."""
        if self._run and made:
            changes = self._directories(place, made)
            self._keep(changes)
            if self._tells:
                self._announced(changes[-1][0], _UNKNOWN)

    @contextlib.contextmanager
    def removes(self, place: AllowedPath, above: int) -> Iterator[None]:
        """Record that the block removes the path and everything in it.

        An exception in the block voids the record of each path that still exists.
        """
        if not self._run:
            yield
            return
        before, content = self._seen(above, place.name)
        top = self._change(place, place.parts, before, None)
        if before is None or before.kind != "directory":
            noted = self._keep([(top, content)])
        elif (why := _too_much(place, above)) is not None:
            noted = self._keep([(msgspec.structs.replace(top, lost=why), None)])
        else:
            # The iterator yields one content at a time, so a large tree never fills the memory.
            noted = self._keep(chain([(top, None)], self._below(place, above)))
        try:
            yield
        except BaseException:  # Removing a tree is not atomic: void only the changes of paths that still exist.
            self._void([change for change in noted if os.path.lexists(change.whole)])
            raise
        if self._tells:
            self._announced(top, _UNKNOWN if content is None else _compared(top, content, None))

    def emit_events(self, me: Actor) -> None:
        """Emit the collected events. Must be called in the event loop."""
        for event in self.told:
            me.emit(event)

    def _announced(self, change: PathChange, diff: Diff) -> None:
        how = "created" if change.before is None else "removed" if change.after is None else "changed"
        path, counts = printable_path(change.whole), {"added": diff.added, "removed": diff.removed}
        self.told.append(FileChanged(tool=self._tool, path=path, how=how, diff=diff.text, **counts))

    def _below(self, place: AllowedPath, above: int) -> Iterator[tuple[PathChange, bytes | None]]:
        """Yield the changes for the contents of a directory, parents before children."""
        for path, directories, files, directory in os.fwalk(place.name, dir_fd=above):
            trio.from_thread.check_cancelled()
            parts = (*place.parts[:-1], *path.split("/"))
            for name in (*directories, *files):
                before, content = self._seen(directory, name)
                yield self._change(place, (*parts, name), before, None), content

    def _seen(self, directory: int, name: str) -> tuple[PathState | None, bytes | None]:
        try:
            return seen(directory, name, most=MOST_OF_ONE if self._store is None else self._store.most_of_one)
        except OSError:
            return PathState(), None

    def _directories(self, place: AllowedPath, made: Sequence[int]) -> list[tuple[PathChange, bytes | None]]:
        state = PathState(kind="directory", mode=0o755)
        return [(self._change(place, place.parts[:depth], None, state), None) for depth in made]

    def _change(
        self, place: AllowedPath, parts: Sequence[str], before: PathState | None, after: PathState | None
    ) -> PathChange:
        return PathChange(
            at=time.time_ns(),
            actor=self._actor,
            tool=self._tool,
            root=encoded(place.root),
            path=encoded("/".join(parts)),
            before=before,
            after=after,
            lost=_lost(before),
            unshown=place.access.unshown(str(place.root.joinpath(*parts))),
            call=self._call,
        )

    def _keep(self, changes: Iterable[tuple[PathChange, bytes | None]]) -> list[PathChange]:
        """Store contents and record, and return the changes that the record contains."""
        if self._store is None:
            return []
        try:
            with self._store.writing():
                kept = [_stored_change(self._store, change, content) for change, content in changes]
                self._store.note(self._run, kept)
            return kept
        except OSError as error:
            log.warning(
                "file changes of %s are not recorded and can't be undone: %s", self._run, error.strerror or error
            )
            return []

    def _void(self, changes: Sequence[PathChange]) -> None:
        if self._store is None:
            return
        # If voiding fails too, the record looks like that of a call that was killed.
        with contextlib.suppress(OSError), self._store.writing():
            self._store.note(self._run, [msgspec.structs.replace(each, void=True) for each in changes])


def keeper_of(me: Actor, setting: Setting, tool: str) -> ChangeKeeper:
    """Return the recorder for the call of `me`.

    It does nothing if the call belongs to no run. Without `setting.keeps` it stores nothing and only collects events.
    """
    store, scope = store_of(setting.environ) if setting.keeps else None, scope_of(me)
    call = "" if scope is None else key_of(scope)
    return ChangeKeeper(store, me.path, tool, tells=me.stream.heard, call=call)


_UNKNOWN = Diff(added=None, removed=None)


def _compared(change: PathChange, before: bytes | None, after: bytes | None) -> Diff:
    """Return the diff, without text for files that permissions hide, binary files and large ones."""
    if len(before or b"") + len(after or b"") > MOST_COUNTED:
        return _UNKNOWN
    name = printable_path("/".join(change.parts))
    diff = unified(before, after, name, characters=MOST_OF_DIFF, lines=MOST_DIFF_LINES, clean=hidden)
    text = "" if change.unshown or diff.added is None else hidden(diff.text)
    return msgspec.structs.replace(diff, text=text)


def run_of(actor: str) -> str:
    """Return the id of the run that an actor belongs to, from its path; empty for none."""
    top = actor.split("/", 2)[1]
    return top if ID.fullmatch(top) else ""


def _stored_change(store: ChangeStore, change: PathChange, content: bytes | None) -> PathChange:
    if content is None:
        return change
    change = _with_secrets(change, content)
    try:
        store.keep(content)
    except OSError as error:
        return msgspec.structs.replace(change, lost=f"the content could not be stored: {error.strerror or error}")
    return change


def _with_secrets(change: PathChange, content: bytes) -> PathChange:
    """Record which secrets of the vault a content includes, so that a later diff can redact them."""
    names = names_in(content)
    if not names:
        return change
    return msgspec.structs.replace(change, secret=True, secrets=tuple(sorted({*change.secrets, *names})))


def _lost(before: PathState | None) -> str:
    if before is None or before.kind in ("link", "directory") or before.sha:
        return ""
    if before.kind == "other":
        return "it was neither a file, a symbolic link nor a directory"
    return f"the file was too large to be stored ({before.size} bytes)" if before.size else "the file could not be read"


def _too_much(place: AllowedPath, above: int) -> str | None:
    """Return why a directory that is removed is not stored; None if it can be."""
    count = size = 0
    for _, directories, files, directory in os.fwalk(place.name, dir_fd=above):
        trio.from_thread.check_cancelled()
        count += len(directories) + len(files)
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
        if count > MOST_FILES:
            return f"the directory was too large to be stored (more than {MOST_FILES} files)"
        if size > MOST_OF_TREE:
            return f"the directory was too large to be stored (more than {MOST_OF_TREE} bytes)"
    return None


# --- recovery of `fs_*` calls that were in flight when their process was killed
#
# The record of changes is written before a file is replaced, and the replacement is atomic. The files therefore prove
# the outcome. If all files are as the call was to leave them, it was done. If all are as it found them, it was not. A
# call that was done must not be repeated: an edit whose new text contains the old one would be applied twice. If
# another program has changed the files meanwhile, or the record is missing, the outcome is unknown, and the call is
# treated like any other (`work/journal/unknown_outcome`).


async def was_done(me: Actor, setting: Setting) -> bool | None:
    """Return whether an earlier incarnation of the run completed the call that `me` repeats; None if unknown."""
    scope = scope_of(me)
    if scope is None or not setting.keeps:
        return None
    find = partial(_was_done, store_of(setting.environ), run_of(me.path), key_of(scope))
    return await trio.to_thread.run_sync(find)


def _was_done(store: ChangeStore, run: str, call: str) -> bool | None:
    changes = [change for change in store.changes(run) if run and change.call == call]
    # Missing directories are created before the record is written, so only the files in them prove anything.
    changes = [change for change in changes if not _is_new_directory(change)] or changes
    if not changes:
        return None
    if _all(changes, lambda change: change.after):
        return True
    if _all(changes, lambda change: change.before):
        return False
    return None


def _all(changes: list[PathChange], wanted: Callable[[PathChange], PathState | None]) -> bool:
    try:
        return all(same(present(place_of(change))[0], wanted(change)) for change in changes)
    except OSError:
        return False


def _is_new_directory(change: PathChange) -> bool:
    return change.before is None and change.after is not None and change.after.kind == "directory"
