"""`_run/steps` and `_run/fork`: what a durable run has done, and another run from there."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio
from support.agent_runs import AgentRunner
from support.control_fixtures import agent_runner, root
from support.control_hub import Client, Served, hub_of
from support.messages import has_message

import callboard
from callboard.actors.front.control.durable_runs import fork_run, steps_of_run
from callboard.actors.front.control.hub import Hub
from callboard.protocol.control import method_structs
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.errors import Denied, NotFound, UsageError

__all__ = ["agent_runner", "root"]

GRAPH = """
name: writer
start: plan
initial_state: {topic: dogs}
nodes:
  plan: {type: script, script: plan.sh, next: ask}
  ask: {type: input, question: "Well?", state_updates: {said: "{{input}}"}, next: write}
  write: {type: script, script: write.sh, next: end}
  end: {type: end, output: "{{topic}} {{said}} {{written}}"}
"""


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))


async def played(hub: Hub, config: Path, world: Path) -> str:
    """A run of the graph that is over; its id."""
    home = config / "agents" / "writer"
    home.mkdir(parents=True)
    (home / "graph.yaml").write_text(GRAPH)
    (home / "plan.sh").write_text("""echo '{"planned": 1}'\n""")
    (home / "write.sh").write_text(f"""echo x >> {world}; echo '{{"written": "written"}}'\n""")
    info = await hub.start(LOCAL, method_structs.StartRun(target="writer", answers=["go"]))
    await over(hub, info.run)
    return info.run


async def over(hub: Hub, run: str) -> str:
    """How a run ended."""
    with trio.fail_after(60):
        await hub.wait(LOCAL, run)
    return hub.get(LOCAL, run).output


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return tmp_path / "world"


async def test_steps_come_in_pages_and_name_nodes_that_begin(root: callboard.Root, tmp_path: Path, world: Path) -> None:
    async with hub_of(root, tmp_path / "hub", durable=True) as hub:
        run = await played(hub, Path(root.config_dir), world)
        found = await steps_of_run(hub, LOCAL, run, 0, 1000)
        assert [step.row for step in found.steps] == list(range(1, len(found.steps) + 1))
        assert found.next is None
        assert [step.place for step in found.steps if step.place] == ["plan#1", "ask#1", "write#1"]
        first = await steps_of_run(hub, LOCAL, run, 0, 2)
        assert first.next == 2
        assert (await steps_of_run(hub, LOCAL, run, 2, 1000)).steps == found.steps[2:]


async def test_a_fork_begins_behind_a_step_with_what_is_different_and_does_again_what_came_behind(
    root: callboard.Root, tmp_path: Path, world: Path
) -> None:
    async with hub_of(root, tmp_path / "hub", durable=True) as hub:
        run = await played(hub, Path(root.config_dir), world)
        looked = await fork_run(hub, LOCAL, method_structs.ForkRun(run=run, at="write#1", dry_run=True))
        assert looked.run is None
        assert len(looked.again) == 1
        assert "write.sh" in looked.again[0]
        assert world.read_text() == "x\n"
        begun = await fork_run(hub, LOCAL, method_structs.ForkRun(run=run, at="write#1", state={"topic": "cats"}))
        assert begun.run is not None
        assert await over(hub, begun.run.run) == "cats go written"
        assert world.read_text() == "x\nx\n"
        assert hub.get(LOCAL, run).output == "dogs go written"
        at_question = next(step for step in (await steps_of_run(hub, LOCAL, run, 0, 99)).steps if step.question)
        other = await fork_run(
            hub,
            LOCAL,
            method_structs.ForkRun(run=run, at=at_question.row, answers={at_question.question: "stay"}, title="other"),
        )
        assert other.run is not None
        assert other.run.title == "other"
        assert await over(hub, other.run.run) == "dogs stay written"


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"at": 99}, NotFound),
        ({"at": "nowhere#1"}, NotFound),
        ({"at": "ask#1", "answers": {"q-none": "x"}}, UsageError),
    ],
)
async def test_what_can_not_be_forked_so_begins_nothing(
    root: callboard.Root, tmp_path: Path, world: Path, wanted: dict[str, object], error: type[Exception]
) -> None:
    async with hub_of(root, tmp_path / "hub", durable=True) as hub:
        run = await played(hub, Path(root.config_dir), world)
        with pytest.raises(error):
            await fork_run(hub, LOCAL, msgspec.convert({"run": run, **wanted}, method_structs.ForkRun))
        assert len(hub.list(LOCAL)) == 1
        assert hub.under_way == 0


async def test_who_may_not_steer_the_run_sees_no_step_and_forks_nothing(
    root: callboard.Root, tmp_path: Path, world: Path
) -> None:
    async with hub_of(root, tmp_path / "hub", durable=True) as hub:
        run = await played(hub, Path(root.config_dir), world)
        reader = Caller(subject="local", scopes=frozenset({"read:runs", "run:agents"}))
        silent = Caller(subject="local", scopes=frozenset({"read:runs", "write:runs", "run:agents"}))
        with pytest.raises(Denied):
            await fork_run(hub, silent, method_structs.ForkRun(run=run, at="ask#1", answers={"q": "x"}))
        stranger = Caller(subject="other", scopes=frozenset({"read:runs", "write:runs", "run:agents"}))
        for caller in (reader, stranger):
            with pytest.raises(Denied):
                await steps_of_run(hub, caller, run, 0, 10)
            with pytest.raises(Denied):
                await fork_run(hub, caller, method_structs.ForkRun(run=run, at=1))
        assert len(hub.list(LOCAL)) == 1


async def test_a_run_that_is_not_kept_has_no_steps(
    agent_runner: AgentRunner, root: callboard.Root, tmp_path: Path
) -> None:
    async with hub_of(root, tmp_path / "hub", durable=False) as hub:
        info = await hub.start(LOCAL, method_structs.StartRun(target="asks", answers=["me"]))
        await over(hub, info.run)
        with pytest.raises(NotFound, match="no durable run"):
            await steps_of_run(hub, LOCAL, info.run, 0, 10)


async def test_both_are_methods_of_the_websocket(
    root: callboard.Root, tmp_path: Path, world: Path, nursery: trio.Nursery
) -> None:
    async with hub_of(root, tmp_path / "hub", durable=True) as hub:
        served = Served(root, hub)
        await nursery.start(served.serve)
        async with served.connect() as websocket:
            await check_methods(Client(websocket), await played(hub, Path(root.config_dir), world))


async def check_methods(client: Client, run: str) -> None:
    page = await client.result("_run/steps", run=run, limit=3)
    assert [step["row"] for step in page["steps"]] == [1, 2, 3]
    forked = await client.result("_run/fork", run=run, at="ask#1", dry_run=True)
    assert forked["run"] is None
    _, text = await client.error("_run/fork", run=run, at="nowhere")
    assert has_message(text, "runs.rerun.fork.cut.2", word="nowhere")
