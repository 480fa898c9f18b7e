"""Turns of sessions that workers play, since their labels say that they have the session: its file has what was said,
once, whatever ends its workers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from support.cluster import SWEEPS, WAKES, ClusterProcesses, beside, info, over, until
from support.fake_models import FakeModels, Reply, Request
from support.postgres import Postgres
from support.starter import CALLBOARD

from callboard.actors.runs.sessions.store import SessionStore


@pytest.fixture
def shared(tmp_path: Path, postgres: Postgres, fake_model: FakeModels) -> ClusterProcesses:
    """A cluster whose workers `one` and `two` have one disk for their sessions, which gateways do not have."""
    cluster_processes = ClusterProcesses(tmp_path, postgres.database(), fake_model.config_dir(tmp_path / "config"))
    (tmp_path / "sessions").mkdir()
    for name in ("one", "two"):
        (tmp_path / name / "config").mkdir(parents=True)
        (tmp_path / name / "config" / "sessions").symlink_to(tmp_path / "sessions")
    return cluster_processes


def say(http: httpx.Client, prompt: str, **more: Any) -> str:
    """Say this in the session `notes`; the run that comes of it."""
    wanted = {"target": "", "prompt": prompt, "session": "notes", "needs": ["notes"], **more}
    answer = http.post("/v1/runs", json=wanted)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["run"])


def said(cluster_processes: ClusterProcesses, worker: str = "one") -> list[str]:
    """What the session has, by those who said it."""
    store = SessionStore(cluster_processes.home / worker / "config")
    messages = store.open(*store.find("notes")).session.messages
    return [f"{message['role']}: {message['content']}" for message in messages]


def answering(model: FakeModels) -> None:
    """The model says how many prompts it was shown."""
    model.answer_with(
        lambda asked: Reply(text=f"{sum(each['role'] == 'user' for each in asked.json['messages'])} so far", delay=0.1)
    )


async def test_a_worker_with_the_label_plays_turns_in_its_own_session(
    shared: ClusterProcesses, fake_model: FakeModels
) -> None:
    answering(fake_model)

    def does() -> None:
        shared.worker("other")
        shared.worker("one", "--has", "notes")
        http = shared.client(shared.gateway())
        first = over(http, say(http, "first"))
        assert (first["status"], first["output"], first["name"]) == ("done", "1 so far", "ask")
        assert first["session"] is not None
        assert said(shared) == ["user: first", "assistant: 1 so far"]
        second = over(http, say(http, "second", session=first["session"]))
        assert (second["output"], second["session"]) == ("2 so far", first["session"])
        assert len(said(shared)) == 4
        assert http.get("/v1/sessions").json()["sessions"] == [], "the gateway has none"
        here = http.post("/v1/runs", json={"target": "", "prompt": "mine", "session": "notes"}).json()
        assert over(http, here["run"])["output"] == "1 so far", "without a label it is the gateway's own"
        missing = over(http, say(http, "third", session="00000000-0000-4000-8000-000000000000"))
        assert (missing["status"], missing["error"]["code"]) == ("failed", "not_found")

    await beside(shared, does)


async def test_turns_of_one_session_that_two_workers_have_come_one_after_another(
    shared: ClusterProcesses, fake_model: FakeModels
) -> None:
    answering(fake_model)

    def does() -> None:
        for name in ("one", "two"):
            shared.worker(name, "--has", "notes", "--room", "2")
        http = shared.client(shared.gateway())
        over(http, say(http, "prompt 0"))
        runs = [say(http, f"prompt {number}") for number in range(1, 4)]
        outputs = sorted(over(http, run)["output"] for run in runs)
        assert outputs == ["2 so far", "3 so far", "4 so far"]
        lines = said(shared)
        assert sorted(lines[::2]) == [f"user: prompt {number}" for number in range(4)]
        assert lines[1::2] == [f"assistant: {number} so far" for number in range(1, 5)]

    await beside(shared, does)


async def test_a_turn_that_waits_for_its_session_can_be_cancelled(
    shared: ClusterProcesses, fake_model: FakeModels
) -> None:
    go_on = trio.Event()
    fake_model.script(Reply(text="at last", hold=go_on))
    token = trio.lowlevel.current_trio_token()

    def does() -> None:
        for name in ("one", "two"):
            shared.worker(name, "--has", "notes", "--room", "1")
        http = shared.client(shared.gateway())
        held = say(http, "first")
        until(lambda: fake_model.requests)
        waits = say(http, "second")
        until(lambda: shared.owner(waits))
        time.sleep(0.3)
        http.post(f"/v1/runs/{waits}/cancel")
        assert over(http, waits)["status"] == "cancelled"
        token.run_sync_soon(go_on.set)
        assert over(http, held)["output"] == "at last"
        assert said(shared) == ["user: first", "assistant: at last"]

    await beside(shared, does)


@pytest.mark.parametrize(
    "how", [signal.SIGSTOP, *(pytest.param(each, marks=pytest.mark.soak) for each in (signal.SIGKILL, signal.SIGTERM))]
)
async def test_a_turn_goes_on_with_another_worker_and_is_in_the_session_once(
    shared: ClusterProcesses, fake_model: FakeModels, how: signal.Signals
) -> None:
    fake_model.answer_with(lambda asked: Reply(text="here it is", gap=0.4, piece=3))

    def does() -> None:
        one = shared.worker("one", *WAKES, "--has", "notes")
        http = shared.client(shared.gateway())
        run = say(http, "go on")
        until(lambda: fake_model.requests)
        one.process.send_signal(how)
        shared.worker("two", *SWEEPS, "--has", "notes")
        until(lambda: shared.owner(run) == "two" or info(http, run)["ended"])
        if how == signal.SIGSTOP:  # it has the session's lock until it wakes
            one.process.send_signal(signal.SIGCONT)
        ended = over(http, run)
        assert (ended["status"], ended["output"]) == ("done", "here it is"), json.dumps(ended)
        time.sleep(1.0)  # what the first one was about to write, it would have written
        assert said(shared) == ["user: go on", "assistant: here it is"]

    await beside(shared, does)


async def test_a_worker_killed_before_a_turn_is_in_its_session_leaves_that_to_the_next(
    shared: ClusterProcesses, fake_model: FakeModels
) -> None:
    answering(fake_model)

    def does() -> None:
        one = shared.worker("one", "--has", "notes", order={"unsaved": True})
        http = shared.client(shared.gateway())
        run = say(http, "go on")
        until(lambda: one.process.poll() is not None)
        assert not info(http, run)["ended"], "it is not over before it is in the session"
        shared.worker("two", *SWEEPS, "--has", "notes")
        shared.expire("one")
        assert over(http, run)["status"] == "done"
        assert said(shared) == ["user: go on", "assistant: 1 so far"]
        assert len(fake_model.requests) == 1

    await beside(shared, does)


async def test_a_turn_is_begun_at_a_terminal_and_what_only_this_machine_can_do_is_refused(
    shared: ClusterProcesses, fake_model: FakeModels
) -> None:
    answering(fake_model)

    def does() -> None:
        shared.worker("one", "--has", "notes")
        http = shared.client(shared.gateway())
        environ = {
            "CALLBOARD_TOKEN": http.headers["authorization"].removeprefix("Bearer "),
            "HOME": str(shared.home),
            "PATH": os.environ["PATH"],
        }

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            argv = [*CALLBOARD, "run", "thinks", "x", "--on", str(http.base_url), *words]
            return subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)

        for _ in range(2):
            done = run("--needs", "notes", "-s", "notes")
            assert (done.returncode, done.stdout) == (0, "1 so far\n"), done.stderr
        store = SessionStore(shared.home / "one" / "config")
        assert len(store.open(*store.find("notes", "thinks"), caller=None).session.messages) == 4
        for flag in ("--ephemeral", "--no-save-session", "--dry-run"):
            done = run(flag)
            assert (done.returncode, f"{flag} works only for runs of this machine" in done.stderr) == (2, True), (
                done.stderr
            )

    await beside(shared, does)


def embedded(asked: Request) -> Reply:
    """Of documents a vector, of prompts an answer."""
    if "input" not in asked.json:
        return Reply(text="so it is")
    rows = [{"index": number, "embedding": [1.0, 0.5]} for number, _ in enumerate(asked.json["input"])]
    return Reply(raw=json.dumps({"data": rows}).encode())


async def test_a_knowledge_base_is_that_of_the_worker_with_the_label(
    shared: ClusterProcesses, fake_model: FakeModels
) -> None:
    fake_model.answer_with(embedded)
    home, settings = shared.home / "one", shared.config / "config.yaml"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "rag_embedding_model": "fake:m"}))
    (home / "docs").mkdir()
    (home / "docs" / "plums.md").write_text("plums are blue")
    (home / "config" / "knowledge").mkdir()
    (home / "config" / "knowledge" / "fruit.yaml").write_text(f"documents: [docs]\nrelative_to: {home}")

    def does() -> None:
        shared.worker("two", "--has", "other")
        shared.worker("one", "--has", "fruit")
        http = shared.client(shared.gateway())
        for where, status in (("fruit", "done"), ("other", "failed")):
            wanted = {"target": "", "prompt": "are plums blue", "knowledge": ["fruit"], "needs": [where]}
            run = http.post("/v1/runs", json={**wanted, "role_prompt": "You are kind."}).json()["run"]
            assert over(http, run)["status"] == status
        asked = [each.prompt for each in fake_model.requests if "input" not in each.json]
        assert ["plums are blue" in prompt for prompt in asked] == [True]

    await beside(shared, does)
