"""The law of taking back: what others have changed is never touched, and all else is as it was.

Drawn are sequences of what runs do with our tools and of what others do beside them, on real files. No two writings
have the same content, so it is known of each file who has written it last: what our run has done after the last word
of another is taken back, and nothing before it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import NamedTuple

import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from callboard.actors.work.tools.builtin.allowed_paths import AllowedPaths
from callboard.actors.work.tools.builtin.writing import _make, _remove, _write
from callboard.actors.work.tools.changes.run_changes import changes_of, restore
from callboard.actors.work.tools.changes.snapshot import ChangeKeeper
from callboard.actors.work.tools.changes.store import ChangeStore
from callboard.protocol.errors import ToolFailed

OURS, LATER, PERSON = "run-ours", "run-later", "a person"
FILES = ("a", "b", "d/a", "d/e/a")
DIRECTORIES = ("d", "d/e", "f")


class Deed(NamedTuple):
    """Somebody does something to a path."""

    who: str
    what: str
    path: str


DEEDS = st.lists(
    st.one_of(
        st.builds(Deed, st.sampled_from((OURS, OURS, LATER, PERSON)), st.just("write"), st.sampled_from(FILES)),
        st.builds(
            Deed, st.sampled_from((OURS, OURS, LATER, PERSON)), st.just("remove"), st.sampled_from(FILES + DIRECTORIES)
        ),
        st.builds(Deed, st.sampled_from((OURS, LATER)), st.just("make"), st.sampled_from(DIRECTORIES)),
    ),
    max_size=12,
)


class World:
    """A directory in which things are done, and what is known of its files."""

    def __init__(self, place: Path) -> None:
        self.project = place / "project"
        (self.project / "d").mkdir(parents=True)
        self.store = ChangeStore(place / "changes")
        self.paths = AllowedPaths([self.project], self.project)
        self.count = 0
        self.history: dict[str, list[tuple[str, tuple[bytes, int] | None]]] = {}
        for name, mode in (("a", 0o640), ("d/a", 0o755)):
            (self.project / name).write_bytes(f"first of {name}\xff".encode("latin-1"))
            (self.project / name).chmod(mode)
        self.begun = self.seen()

    def seen(self) -> dict[str, tuple[bytes, int]]:
        """Each file's content and mode."""
        files = (path for path in self.project.rglob("*") if path.is_file() and not path.is_symlink())
        return {
            str(path.relative_to(self.project)): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
            for path in files
        }

    def do(self, deed: Deed) -> None:
        """One deed, and who has changed which files by it."""
        before = self.seen()
        self.count += 1
        with contextlib.suppress(ToolFailed, OSError):
            self._by_person(deed) if deed.who == PERSON else self._by_tool(deed)
        after = self.seen()
        for name in before.keys() | after.keys():
            if before.get(name) != after.get(name):
                self.history.setdefault(name, [("", before.get(name))]).append((deed.who, after.get(name)))
                self._forget_a_detour(self.history[name])

    def _forget_a_detour(self, history: list[tuple[str, tuple[bytes, int] | None]]) -> None:
        """A person who has put things back as our run has left them has changed nothing that could be seen."""
        at = len(history) - 1
        while history[at][0] == PERSON:
            at -= 1
        if history[at] == (OURS, history[-1][1]):
            del history[at + 1 :]

    def _by_person(self, deed: Deed) -> None:
        path = self.project / deed.path
        if deed.what == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(f"person {self.count}".encode())
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

    def _by_tool(self, deed: Deed) -> None:
        keeper = ChangeKeeper(self.store, f"/{deed.who}/clerk", "fs")
        if deed.what == "write":
            _write(self.paths.find(deed.path), f"tool {self.count}".encode(), keeper)
        elif deed.what == "make":
            _make(self.paths.find(deed.path), keeper)
        else:
            _remove(self.paths, self.paths.find(deed.path, follow=False), keeper)

    def owed(self, name: str) -> tuple[bytes, int] | None:
        """What a file has to hold after `OURS` was taken back: what stood there after the last word of another."""
        history = self.history[name]
        at = len(history) - 1
        while at > 0 and history[at][0] == OURS:
            at -= 1
        return history[at][1]


def in_thread(deeds: list[Deed], place: Path) -> None:
    world = World(place)
    for deed in deeds:
        world.do(deed)
    before = world.seen()
    changes_of(world.store, [OURS])
    report = restore(world.store, [OURS])
    after = world.seen()
    left = {str(Path(each.path).relative_to(world.project)): each.why for each in report.left}
    for name in before.keys() | after.keys() | world.history.keys():
        if name not in world.history:
            assert after.get(name) == before.get(name), f"{name} was touched by nobody"
            continue
        owed = world.owed(name)
        if after.get(name) != owed:
            # Another has put something in the way: it is not touched, and named.
            assert after.get(name) == before.get(name), name
            assert name in left or any(name.startswith(f"{other}/") for other in left), (name, left)
    if all(deed.who == OURS for deed in deeds):
        assert (after, report.left) == (world.begun, [])
    assert restore(world.store, [OURS]).restored == [], "it was taken back already"
    for path in [world.store.directory, *world.store.directory.rglob("*")] if deeds else []:
        if path.exists():
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@settings(max_examples=150)
@given(DEEDS)
@example([Deed(OURS, "remove", "d"), Deed(OURS, "write", "d/e/a")])
@example([Deed(OURS, "write", "d/e/a"), Deed(PERSON, "remove", "d"), Deed(OURS, "make", "d")])
@example([Deed(OURS, "remove", "a"), Deed(OURS, "write", "a"), Deed(PERSON, "remove", "a")])
@example([Deed(OURS, "remove", "a"), Deed(OURS, "write", "a")])
@example([Deed(OURS, "remove", "d"), Deed(PERSON, "write", "d"), Deed(OURS, "write", "a")])
async def test_what_others_have_changed_stays_and_all_else_is_as_it_was(deeds: list[Deed]) -> None:
    with tempfile.TemporaryDirectory() as place:
        await trio.to_thread.run_sync(in_thread, deeds, Path(os.path.realpath(place)))
