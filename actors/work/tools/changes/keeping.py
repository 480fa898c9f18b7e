"""What a tool tells before it changes a file: the content of now is kept, and the record says what will be there.

    with keeper.writes(place, directory, data):
        replace(place, directory, old, data)

The record comes first, so that a process that is killed right after it has changed a file has left word of it. If the
change fails, the record says so in a further line.

None of this stands in the way of the tool: what can't be kept, because the disk is full or the file too large, is said
to be lost, and the tool goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.events import FileChanged
from .....protocol.requests import ID
from ....io.handed_out import hidden, names_in
from ..builtin.allowed_paths import AllowedPath, Setting
from .present import seen
from .record import Change, State, encoded, told
from .store import MOST_OF_ONE, Store, sha_of, store_of
from .unified import MOST_COUNTED, Diff, unified

if TYPE_CHECKING:
    from .....supervisors import Actor

MOST_OF_TREE = 64 * 1024 * 1024
MOST_FILES = 10_000
"""Bytes and files of a directory that is removed; of a larger one nothing is kept."""

MOST_TOLD = 8_000
MOST_TOLD_LINES = 200
"""Characters and lines of the diff that an event tells of."""

log = logging.getLogger("callboard.changes")


class Keeper:
    """Keeps what one call of a tool is about to change. Its methods block.

    Args:
        store: where; None to keep nothing.
        actor: path of the call's actor, which begins with the run.
        tool: its name.
        tells: an event says what was changed.

    Attributes:
        told: what was changed, for `tell`.
    """

    def __init__(self, store: Store | None, actor: str, tool: str, *, tells: bool = False) -> None:
        self.told: list[FileChanged] = []
        self._tells = tells
        self._store = store
        self._actor = actor
        self._tool = tool
        self._run = run_of(actor)

    @contextlib.contextmanager
    def writes(self, place: AllowedPath, above: int, data: bytes, made: Sequence[int] = ()) -> Iterator[None]:
        """The block gives the file this content; `made` are the depths of the directories that were made for it."""
        if not self._run:
            yield
            return
        before, content = self._seen(above, place.name)
        mode = 0o644 if before is None else before.mode
        changed = self._change(place, place.parts, before, State(sha=sha_of(data), size=len(data), mode=mode))
        changed = _with_secrets(changed, data)
        self._keep([*self._directories(place, made), (changed, content)])
        try:
            yield
        except BaseException:  # whatever it was, nothing was written
            self._void([changed])
            raise
        if self._tells:
            unknown = before is not None and content is None
            self._told(changed, _UNKNOWN if unknown else _compared(changed, content, data))

    def makes(self, place: AllowedPath, made: Sequence[int]) -> None:
        """Directories were made, down to these depths."""
        if self._run and made:
            changes = self._directories(place, made)
            self._keep(changes)
            if self._tells:
                self._told(changes[-1][0], _UNKNOWN)

    @contextlib.contextmanager
    def removes(self, place: AllowedPath, above: int) -> Iterator[None]:
        """The block removes it, with all that is in it."""
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
            noted = self._keep(chain([(top, None)], self._below(place, above)))
        try:
            yield
        except BaseException:  # whatever it was, some of it may be there still
            self._void([change for change in noted if os.path.lexists(change.whole)])
            raise
        if self._tells:
            self._told(top, _UNKNOWN if content is None else _compared(top, content, None))

    def tell(self, me: Actor) -> None:
        """Tell those who hear the run what the call has changed; in the event loop."""
        for event in self.told:
            me.emit(event)

    def _told(self, change: Change, diff: Diff) -> None:
        how = "created" if change.before is None else "removed" if change.after is None else "changed"
        path, counts = told(change.whole), {"added": diff.added, "removed": diff.removed}
        self.told.append(FileChanged(tool=self._tool, path=path, how=how, diff=diff.text, **counts))

    def _below(self, place: AllowedPath, above: int) -> Iterator[tuple[Change, bytes | None]]:
        """What is in a directory, parents before what is in them."""
        for path, directories, files, here in os.fwalk(place.name, dir_fd=above):
            trio.from_thread.check_cancelled()
            parts = (*place.parts[:-1], *path.split("/"))
            for name in (*directories, *files):
                before, content = self._seen(here, name)
                yield self._change(place, (*parts, name), before, None), content

    def _seen(self, directory: int, name: str) -> tuple[State | None, bytes | None]:
        try:
            return seen(directory, name, most=MOST_OF_ONE if self._store is None else self._store.most_of_one)
        except OSError:
            return State(), None

    def _directories(self, place: AllowedPath, made: Sequence[int]) -> list[tuple[Change, bytes | None]]:
        state = State(kind="directory", mode=0o755)
        return [(self._change(place, place.parts[:depth], None, state), None) for depth in made]

    def _change(self, place: AllowedPath, parts: Sequence[str], before: State | None, after: State | None) -> Change:
        return Change(
            at=time.time_ns(),
            actor=self._actor,
            tool=self._tool,
            root=encoded(place.root),
            path=encoded("/".join(parts)),
            before=before,
            after=after,
            lost=_lost(before),
            unshown=place.access.unshown(str(place.root.joinpath(*parts))),
        )

    def _keep(self, changes: Iterable[tuple[Change, bytes | None]]) -> list[Change]:
        """Keep contents and record; what is in the record then."""
        if self._store is None:
            return []
        try:
            with self._store.writing():
                kept = [_kept(self._store, change, content) for change, content in changes]
                self._store.note(self._run, kept)
            return kept
        except OSError as error:
            log.warning("what %s changes in files is not kept: %s", self._run, error.strerror or error)
            return []

    def _void(self, changes: Sequence[Change]) -> None:
        if self._store is None:
            return
        with contextlib.suppress(OSError), self._store.writing():  # else it looks like one that was killed
            self._store.note(self._run, [msgspec.structs.replace(each, void=True) for each in changes])


def keeper_of(me: Actor, setting: Setting, tool: str) -> Keeper:
    """Keeps for the call that `me` plays; nothing, if it is not a call of a run."""
    return Keeper(store_of(setting.environ) if setting.keeps else None, me.path, tool, tells=me.stream.heard)


_UNKNOWN = Diff(added=None, removed=None)


def _compared(change: Change, before: bytes | None, after: bytes | None) -> Diff:
    """What has changed; no text of what the permissions deny to show, of binary files, and of long ones."""
    if len(before or b"") + len(after or b"") > MOST_COUNTED:
        return _UNKNOWN
    name = told("/".join(change.parts))
    diff = unified(before, after, name, characters=MOST_TOLD, lines=MOST_TOLD_LINES, clean=hidden)
    text = "" if change.unshown or diff.added is None else hidden(diff.text)
    return msgspec.structs.replace(diff, text=text)


def run_of(actor: str) -> str:
    """The run that an actor works for, by its path; empty for none."""
    top = actor.split("/", 2)[1]
    return top if ID.fullmatch(top) else ""


def _kept(store: Store, change: Change, content: bytes | None) -> Change:
    if content is None:
        return change
    change = _with_secrets(change, content)
    try:
        store.keep(content)
    except OSError as error:
        return msgspec.structs.replace(change, lost=f"it could not be kept: {error.strerror or error}")
    return change


def _with_secrets(change: Change, content: bytes) -> Change:
    """Note what of the vault's stands in one of its contents, so that who shows it later knows what to hide."""
    names = names_in(content)
    if not names:
        return change
    return msgspec.structs.replace(change, secret=True, secrets=tuple(sorted({*change.secrets, *names})))


def _lost(before: State | None) -> str:
    if before is None or before.kind in ("link", "directory") or before.sha:
        return ""
    if before.kind == "other":
        return "it was neither a file, a link nor a directory"
    return f"it was too large to be kept ({before.size} bytes)" if before.size else "it could not be read"


def _too_much(place: AllowedPath, above: int) -> str | None:
    """Why a directory that is removed is not kept; None if it can be."""
    count = size = 0
    for _, directories, files, here in os.fwalk(place.name, dir_fd=above):
        trio.from_thread.check_cancelled()
        count += len(directories) + len(files)
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=here, follow_symlinks=False)
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
        if count > MOST_FILES:
            return f"there was too much in it to be kept (more than {MOST_FILES} files)"
        if size > MOST_OF_TREE:
            return f"there was too much in it to be kept (more than {MOST_OF_TREE} bytes)"
    return None
