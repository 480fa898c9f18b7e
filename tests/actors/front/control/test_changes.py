"""What the file tools of a run have changed, over the wire: shown, taken back, and removed with the run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio
from support.agent_runs import AgentRunner
from support.control_hub import Client
from support.fake_models import FakeModels, Reply
from support.messages import says

from callboard.actors.front.access.scopes import METHODS
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.run_records import changes_of_run, restore_run
from callboard.actors.io.secret_redaction import handed_out
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.control.method_structs import StartRun
from callboard.protocol.errors import Conflict, Denied, NotFound


@pytest.fixture
def project(tmp_path: Path, agent_runner: AgentRunner, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with one file, and a clerk who may write."""
    project = (tmp_path / "project").resolve()
    project.mkdir()
    (project / "kept.txt").write_text("one\ntwo\n")
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    agent_runner.plain("global_tools: [fs]", name="clerk")
    return project


async def played(hub: Hub, model: FakeModels, *calls: tuple[str, dict[str, object]]) -> str:
    """The id of a run that has ended, whose model has made these calls."""
    model.script(*(Reply(calls=[call]) for call in calls), "done")
    info = await hub.start(LOCAL, StartRun(target="clerk", prompt="go", yes=True))
    with trio.fail_after(60):
        await hub.wait(LOCAL, info.run)
    return info.run


async def writers(hub: Hub, run: str) -> list[str]:
    """The actors of the calls that have changed files, as the events tell."""
    return [event.actor for event in await hub.events(LOCAL, run) if event.kind == "file.changed"]


async def test_what_the_settings_do_not_want_is_not_kept(
    hub: Hub, project: Path, agent_runner: AgentRunner, tmp_path: Path, fake_model: FakeModels
) -> None:
    hub.root.registry.settings = msgspec.structs.replace(hub.root.settings, keep_changes=False)
    run = await played(hub, fake_model, ("fs_write", {"path": "kept.txt", "contents": "new"}))
    assert (project / "kept.txt").read_text() == "new"
    assert not (tmp_path / "state" / "callboard" / "changes").exists()
    assert await writers(hub, run), "it is told all the same"
    assert (await changes_of_run(hub, LOCAL, run)).files == []


async def test_clients_read_what_a_run_has_changed_and_have_it_taken_back(
    client: Client, hub: Hub, project: Path, fake_model: FakeModels
) -> None:
    run = await played(
        hub,
        fake_model,
        ("fs_patch", {"path": "kept.txt", "contents": "@@ -1,2 +1,2 @@\n one\n-two\n+2\n"}),
        ("fs_write", {"path": "new.txt", "contents": "new"}),
        ("fs_write", {"path": "other.txt", "contents": "other"}),
    )
    result = await client.result("_run/changes", run=run)
    kept, new, other = result["files"]
    assert (kept["path"], kept["how"], kept["added"], kept["removed"]) == (str(project / "kept.txt"), "changed", 1, 1)
    assert kept["diff"].splitlines() == ["--- a/kept.txt", "+++ b/kept.txt", "@@ -1,2 +1,2 @@", " one", "-two", "+2"]
    assert (new["how"], other["how"], result["more"]) == ("created", "created", 0)
    actor = (await writers(hub, run))[-1]
    assert actor.endswith("/fs_write")
    written = (await client.result("_run/changes", run=run, actor=actor))["files"]
    assert [Path(each["path"]).name for each in written] == ["new.txt", "other.txt"]
    assert len((await client.result("_run/changes", run=run, actor=f"/{run}"))["files"]) == 3
    assert (await client.result("_run/changes", run=run, actor=f"/{run}/nobody"))["files"] == []
    (project / "other.txt").write_text("mine")
    report = await client.result("_run/restore", run=run)
    assert [(Path(each["path"]).name, each["done"]) for each in report["restored"]] == [
        ("kept.txt", "content"),
        ("new.txt", "removed"),
    ]
    assert report["left"] == [{"path": str(project / "other.txt"), "why": "another program has changed it since"}]
    assert (project / "kept.txt").read_text() == "one\ntwo\n"
    assert (project / "other.txt").read_text() == "mine"


async def test_what_the_vault_has_handed_out_is_not_in_a_diff(hub: Hub, project: Path, fake_model: FakeModels) -> None:
    (project / "kept.txt").write_text("password = hunter2-and-more\n")
    run = await played(hub, fake_model, ("fs_write", {"path": "kept.txt", "contents": "none\n"}))
    handed_out("hunter2-and-more")
    (file,) = (await changes_of_run(hub, LOCAL, run)).files
    assert "-password = [redacted]" in file.diff


async def test_nothing_is_taken_back_while_the_run_goes_on(
    hub: Hub, project: Path, agent_runner: AgentRunner, fake_model: FakeModels
) -> None:
    fake_model.script(Reply(calls=[("fs_write", {"path": "new.txt", "contents": "new"})]))
    info = await hub.start(LOCAL, StartRun(target="clerk", prompt="go"))  # it asks, and nobody answers
    with pytest.raises(Conflict, match=says("front.control.run_records.restore_run")):
        await restore_run(hub, LOCAL, info.run)
    hub.cancel(LOCAL, info.run)


async def test_whose_run_it_is_and_which_scopes_decide(hub: Hub, project: Path, fake_model: FakeModels) -> None:
    run = await played(hub, fake_model, ("fs_write", {"path": "new.txt", "contents": "new"}))
    reader = Caller("key:r", frozenset({"read:runs", "write:runs"}))
    stranger = Caller("key:s", frozenset({"write:runs", "run:files"}))
    with pytest.raises(Denied):
        await changes_of_run(hub, reader, run)
    with pytest.raises(Denied, match="run:files"):
        await restore_run(hub, reader, run)
    with pytest.raises(NotFound):
        await restore_run(hub, stranger, run)
    assert (project / "new.txt").exists()
    assert set(METHODS["_run/restore"].scopes) == {"write:runs", "run:files"}
    assert METHODS["_run/restore"].action == "FilesRestore"


async def test_a_run_that_is_deleted_takes_its_before_images_along(
    hub: Hub, project: Path, tmp_path: Path, fake_model: FakeModels
) -> None:
    first = await played(hub, fake_model, ("fs_write", {"path": "kept.txt", "contents": "2"}))
    second = await played(hub, fake_model, ("fs_write", {"path": "kept.txt", "contents": "3"}))
    changes = tmp_path / "state" / "callboard" / "changes"
    assert len(list((changes / "blobs").iterdir())) == 2
    await hub.delete(LOCAL, first)
    assert [path.stem for path in (changes / "runs").iterdir()] == [second]
    assert [path.read_text() for path in (changes / "blobs").iterdir()] == ["2"]
