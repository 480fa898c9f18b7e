"""`callboard install` as users run it: by a script, at a terminal, with nobody there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from support.bundles import BUNDLE, SILENT, Repository, put
from support.messages import has_message
from support.screen import Screen
from support.starter import CALLBOARD
from support.waiting import PATIENCE, READING

from callboard.protocol.version import VERSION

from .conftest import Ended

Install = Callable[..., Ended]


@pytest.fixture
def install(callboard: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Runs `callboard install`."""
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path / "config"))
    for name, value in SILENT.items():
        monkeypatch.setenv(name, value)
    return lambda *arguments: callboard("install", *arguments)


def test_a_script_installs_lists_updates_and_removes(install: Install, tmp_path: Path) -> None:
    made = Repository(tmp_path / "team")
    commit = made.commit(BUNDLE)
    done = install(made.url, "--yes", "--filter", "roles,tools")
    assert done.code == 0
    assert done.out == f"installed team from {made.url}, commit {commit[:12]}: 3 files written\n"
    assert "tool ring (new): Rings.\n      runs bash without asking: ring(how)\n" in done.err
    (tmp_path / "config/roles/kind.md").write_text("mine\n")
    listed = install("list")
    assert listed.out.startswith(f"  team  {made.url}  {commit[:12]}  3 files  20")
    assert listed.out.endswith("\n  changed by you: roles/kind.md (team)\n")
    assert install().out == listed.out
    (bundle,) = json.loads(install("list", "-o", "json").out)["bundles"]
    assert (bundle["name"], bundle["filter"], bundle["changed"]) == ("team", ["roles", "tools"], ["roles/kind.md"])
    made.commit({"roles/terse.md": "newer\n"})
    *_, written, unchanged = install("update", "--yes").out.splitlines()
    assert written.endswith(": 1 file written")
    assert has_message(unchanged, "work.bundles.manage._apply", path="roles/kind.md")
    assert has_message(install("update", "team", "--yes").out, "work.bundles.manage.apply_bundle", name="team")
    assert install("remove", "team", "--yes").out.startswith("removed team: 2 files\nunchanged, ")
    assert install("list").out.startswith("No bundle is installed in ")


def test_without_a_person_the_preview_is_shown_and_the_exit_code_says_so(install: Install, tmp_path: Path) -> None:
    put(tmp_path / "plain", BUNDLE)
    for flags in ([], ["--no-input"]):
        done = install(str(tmp_path / "plain"), *flags)
        assert done.code == 5
        assert done.out == ""
        assert "agent clerk (new): Sorts letters." in done.err
        assert done.err.endswith(
            "callboard: nothing was changed: 'Install plain?' needs an answer at a terminal, or --yes\n"
        )
    assert not (tmp_path / "config/roles").exists()


def test_what_is_in_the_way_or_wrong_is_an_error_of_usage(install: Install, tmp_path: Path) -> None:
    put(tmp_path / "plain", BUNDLE)
    put(tmp_path / "config", {"roles/kind.md": "mine\n"})
    assert install(str(tmp_path / "plain"), "--yes").code == 2
    assert install("https://me:secret@example.org/x", "--yes").code == 2
    assert install("nowhere", "--yes").code == 2
    assert install("--yes").code == 2
    assert install("x", "--builtin").code == 2
    assert install("remove", "team").code == 2
    assert install((tmp_path / "nowhere").as_uri(), "--yes").code == 6


def test_what_comes_with_callboard_is_laid_out(install: Install, tmp_path: Path) -> None:
    done = install("--builtin", "--filter", "roles/shell", "--yes")
    assert done.code == 0
    assert done.out == f"installed builtin, which is built into Callboard {VERSION}: 1 file written\n"
    assert install("list").out.startswith(f"  builtin  comes with Callboard  {VERSION}  1 file  20")
    refused = install("--builtin", "--filter", "zzz", "--yes")
    assert has_message(refused.err, "work.bundles.layout.chosen", text="zzz")
    assert (tmp_path / "config/roles/shell.md").is_file()


def test_what_a_stranger_has_written_can_not_write_to_the_terminal(install: Install, tmp_path: Path) -> None:
    put(tmp_path / "plain", {"roles/kind.md": '---\ndescription: "a\\e[2Jb\\rc"\n---\nx\n'})
    done = install(str(tmp_path / "plain"), "--yes")
    assert "\x1b" not in done.err
    assert "\r" not in done.err


async def test_at_a_terminal_a_person_is_asked(tmp_path: Path) -> None:
    put(tmp_path / "plain", BUNDLE)
    env = {**os.environ, **SILENT, "CALLBOARD_CONFIG_DIR": str(tmp_path / "config")}
    command = [*CALLBOARD, "install", str(tmp_path / "plain")]
    for answer, code in (("n", 1), ("y", 0)):
        screen = Screen()
        try:
            ends = {"stdin": screen.slave, "stdout": screen.slave, "stderr": screen.slave}
            process = await trio.lowlevel.open_process(command, env=env, **ends)
            await screen.shows(r"Install plain\?")
            await trio.sleep(READING)  # keys that were typed before the question could be read are dropped
            screen.press(f"{answer}\r")
            with trio.fail_after(PATIENCE):
                assert await process.wait() == code
        finally:
            screen.close()
        assert (tmp_path / "config/roles/kind.md").exists() == (answer == "y")
