"""A kill at any moment of an install leaves the old state, or one that the next install finishes."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.bundles import BUNDLE, TAKEN, BundleInstaller, files_below, put
from support.messages import says
from support.starter import forked_code

from callboard.actors.work.bundles import transaction as module
from callboard.actors.work.bundles.transaction import JOURNAL, STAGING, NewFile, apply_files, finish
from callboard.protocol.errors import InvalidFile

OLD = {"a/one": "old\n", "a/gone/two": "old\n", "three": "same\n"}
NEW = {"a/one": "new\n", "b/c/four": "#!new\n", "three": "same\n"}
PUTS = {"a/one": NewFile(b"new\n"), "b/c/four": NewFile(b"#!new\n", executable=True)}

PROGRAM = """
import sys
from pathlib import Path
from callboard.actors.work.bundles.transaction import NewFile, apply_files
base, count = Path(sys.argv[1]), int(sys.argv[2])
print("begins", flush=True)
apply_files(base, {f"roles/{n}.md": NewFile(b"new") for n in range(count)}, [f"old/{n}" for n in range(count)])
"""


class _KilledError(BaseException):
    """Stands for SIGKILL: nothing of ours runs after it."""


def test_all_is_done_and_nothing_else_is_left(tmp_path: Path) -> None:
    put(tmp_path, OLD)
    apply_files(tmp_path, PUTS, ["a/gone/two"])
    assert files_below(tmp_path) == NEW
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "three"]
    assert not (tmp_path / "a/gone").exists()
    assert os.access(tmp_path / "b/c/four", os.X_OK)
    assert not finish(tmp_path)


def test_a_file_that_is_there_keeps_who_may_read_it(tmp_path: Path) -> None:
    put(tmp_path, {"secret": "old\n", "tool": "#!old\n", "open": "old\n"})
    for name, mode in (("secret", 0o600), ("tool", 0o700), ("open", 0o666)):
        (tmp_path / name).chmod(mode)
    new = {"secret": NewFile(b"new\n"), "tool": NewFile(b"#!new\n", executable=True), "open": NewFile(b"new\n")}
    apply_files(tmp_path, new, [])
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in new}
    assert modes == {"secret": 0o600, "tool": 0o700, "open": 0o666}
    assert (tmp_path / "secret").read_text() == "new\n"


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same disk", "other disk"])
def test_a_personal_file_is_for_its_owner_and_stays_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    base, outside = tmp_path / "base", tmp_path / "dotfiles" / "mcp.json"
    put(tmp_path, {"dotfiles/mcp.json": "old\n", "base/x": ""})
    outside.chmod(0o600)
    (base / "link.json").symlink_to(outside)
    (base / "lost.json").symlink_to(tmp_path / "dotfiles" / "lost.json")
    if elsewhere:
        replace = Path.replace

        def no_replace(self: Path, target: Path) -> Path:
            if self.parent.name == STAGING and self.name != JOURNAL and not self.name.startswith(JOURNAL):
                raise OSError(errno.EXDEV, "other disk")
            return replace(self, target)

        monkeypatch.setattr(Path, "replace", no_replace)
    names = ("link.json", "lost.json", "new.json", "last")
    apply_files(base, {name: NewFile(b"new\n", personal=True) for name in names}, [])
    assert (base / "link.json").is_symlink()
    assert (base / "lost.json").is_symlink()
    assert outside.read_text() == "new\n"
    assert [(base / name).stat().st_mode & 0o777 for name in names] == [0o600] * 4


@pytest.mark.parametrize("moment", range(12))
def test_whatever_was_done_before_a_kill_the_rest_is_finished_or_nothing_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    put(tmp_path, OLD)
    calls = 0

    def counted(name: str) -> None:
        original = getattr(Path, name)

        def instead(*arguments: object, **named: object) -> object:
            nonlocal calls
            calls += 1
            if calls > moment:
                raise _KilledError
            return original(*arguments, **named)

        monkeypatch.setattr(Path, name, instead)

    for name in ("write_bytes", "replace", "unlink", "rmdir", "chmod"):
        counted(name)
    monkeypatch.setattr(module.shutil, "rmtree", lambda *_, **__: None)
    try:
        apply_files(tmp_path, PUTS, ["a/gone/two"])
    except _KilledError:
        pass
    else:
        assert moment >= 8
    monkeypatch.undo()
    begun = (tmp_path / STAGING / JOURNAL).exists()
    before = {path: text for path, text in files_below(tmp_path).items() if not path.startswith(STAGING)}
    finish(tmp_path)
    after = files_below(tmp_path)
    assert after == (NEW if begun or before == NEW else OLD)
    assert not (tmp_path / STAGING).exists()


def test_a_real_kill_leaves_one_of_the_two_states(tmp_path: Path) -> None:
    seen = set()
    for attempt in range(6):
        base = tmp_path / str(attempt)
        count = 300
        put(base, {f"old/{n}": "old" for n in range(count)})
        argv = [*forked_code(PROGRAM), str(base), str(count)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(attempt * 0.012)
            process.send_signal(signal.SIGKILL)
        finish(base)
        names = frozenset(path.split("/")[0] for path in files_below(base))
        assert names in ({"old"}, {"roles"})
        assert len(files_below(base)) == count
        seen |= names
    assert seen


def test_a_journal_that_names_places_elsewhere_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / STAGING).mkdir()
    (tmp_path / "outside").write_text("x")
    for text in ('{"removes": ["../outside"]}', '{"puts": [{"path": "/etc/x", "staged": "0"}]}', "{"):
        (tmp_path / STAGING / JOURNAL).write_text(text)
        with pytest.raises(InvalidFile, match=says("work.bundles.transaction.finish.2")):
            finish(tmp_path)


async def test_the_next_install_finishes_what_a_kill_has_left(
    bundle_installer: BundleInstaller, tmp_path: Path
) -> None:
    put(tmp_path / "plain", BUNDLE)
    put(bundle_installer.base, {f"{STAGING}/0": "from before\n", f"{STAGING}/{JOURNAL}": ""})
    put(
        bundle_installer.base,
        {f"{STAGING}/{JOURNAL}": '{"puts": [{"path": "roles/before.md", "staged": "0"}], "removes": []}'},
    )
    await bundle_installer.install("plain")
    assert re.fullmatch(says("work.bundles.manage._begin"), bundle_installer.told[0])
    assert bundle_installer.files["roles/before.md"] == "from before\n"
    assert TAKEN.items() <= bundle_installer.files.items()
