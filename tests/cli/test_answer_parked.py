"""`callboard answer` for runs that nobody plays: before, while and after a server goes on with them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.killed_servers import KilledServers, events, questions, status_of
from support.messages import has_message
from support.starter import CALLBOARD

from callboard.supervisors.journal.reading import read_run


@pytest.fixture
def killed_servers(tmp_path: Path, fake_model: FakeModels) -> Iterator[KilledServers]:
    fake_model.answer_with(lambda request: Reply(text=f"<{request.prompt}>"))
    made = KilledServers(tmp_path, fake_model)
    yield made
    made.end_all()


async def say(killed_servers: KilledServers, *words: str) -> tuple[int, str, str]:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(killed_servers.home),
        "XDG_STATE_HOME": str(killed_servers.home / "state"),
    }
    program = subprocess.Popen(
        [*CALLBOARD, *words],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=killed_servers.home,
    )
    out, err = await trio.to_thread.run_sync(program.communicate)
    return program.returncode, out, err


async def parked(killed_servers: KilledServers, number: int = 1) -> list[str]:
    """So many runs that wait for a person, whose server was killed."""
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        runs = [(await http.post("/v1/runs", json={"target": "asks"})).json()["run"] for _ in range(number)]
        await questions(http, number)
        for run in runs:
            await killed_servers.rows_of(run, 5)
    await killed_servers.kill()
    return runs


async def test_an_answer_given_while_no_process_lives_counts_once_and_is_told(killed_servers: KilledServers) -> None:
    one, two = await parked(killed_servers, 2)
    code, out, _ = await say(killed_servers, "answer", "-o", "json")
    asked = {question["run"]: question["id"] for question in json.loads(out)["questions"]}
    assert (code, sorted(asked)) == (0, sorted([one, two]))
    code, out, _ = await say(killed_servers, "answer", asked[one], "Ann")
    assert (code, has_message(out, "cli.control.commands.answering._leave_answer.2")) == (0, True)
    code, _, err = await say(killed_servers, "answer", asked[one], "Bob")
    assert (code, has_message(err, "cli.control.commands.answering._named")) == (2, True)
    code, out, _ = await say(killed_servers, "answer", two.removeprefix("run-")[:6], "Cid")
    assert code == 0
    assert (await say(killed_servers, "answer"))[0] == 3  # neither a server nor a question
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        for run, name in ((one, "Ann"), (two, "Cid")):
            over = await status_of(http, run, lambda info: info["status"] == "done")
            assert over["output"] == f"{name}: <THINK {name}>"
            told = [event for event in await events(http, run) if event["kind"] == "question.answered"]
            assert [(event["id"], event["data"]["value"], event["data"]["by"]) for event in told] == [
                (asked[run], name, "terminal")
            ]
    assert killed_servers.effects == 2


async def test_an_answer_given_while_runs_are_about_to_go_on_finds_its_question(killed_servers: KilledServers) -> None:
    runs = await parked(killed_servers, 10)
    _, out, _ = await say(killed_servers, "answer", "-o", "json")
    asked = {question["run"]: question["id"] for question in json.loads(out)["questions"]}
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        async with trio.open_nursery() as nursery:

            async def answer(run: str) -> None:
                reply = await http.post(f"/v1/questions/{asked[run]}/answer", json={"value": run})
                assert reply.status_code == 200, reply.text

            for run in runs:
                nursery.start_soon(answer, run)
        for run in runs:
            over = await status_of(http, run, lambda info: info["status"] == "done")
            assert over["output"].startswith(f"{run}: ")


async def test_of_two_who_answer_a_run_that_nobody_plays_the_first_wins(killed_servers: KilledServers) -> None:
    (run,) = await parked(killed_servers)
    _, out, _ = await say(killed_servers, "answer", "-o", "json")
    (question,) = json.loads(out)["questions"]
    codes: list[int] = []

    async def answer(name: str) -> None:
        code, _, _ = await say(killed_servers, "answer", question["id"], name)
        codes.append(code)

    async with trio.open_nursery() as nursery:
        for name in ("Ann", "Bob", "Cid"):
            nursery.start_soon(answer, name)
    assert sorted(codes) == [0, 2, 2]
    past = read_run(killed_servers.journal, run)
    assert past is not None
    assert len(past.letters) == 1


async def test_an_accepted_answer_is_on_disk_whatever_comes_then(killed_servers: KilledServers) -> None:
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        run = (await http.post("/v1/runs", json={"target": "asks"})).json()["run"]
        (question,) = await questions(http, 1)
        reply = await http.post(f"/v1/questions/{question['id']}/answer", json={"value": "Ann"})
        assert reply.status_code == 200
    await killed_servers.kill()
    await killed_servers.begin("--durable")
    async with killed_servers.client() as http:
        over = await status_of(http, run, lambda info: info["status"] == "done")
        assert over["output"] == "Ann: <THINK Ann>"


async def test_a_run_goes_to_another_place_as_a_file_and_on_there(killed_servers: KilledServers) -> None:
    (run,) = await parked(killed_servers)
    code, out, _ = await say(killed_servers, "runs", "export", run, "moved.run")
    assert (code, has_message(out, "cli.actions.durable.export_run.2")) == (0, True)
    assert (killed_servers.home / "moved.run").stat().st_mode & 0o777 == 0o600
    assert (await say(killed_servers, "runs", "import", "moved.run"))[0] == 2  # it is here
    assert (await say(killed_servers, "runs", "rm", run))[0] == 0
    assert killed_servers.interrupted() == []
    whole = (killed_servers.home / "moved.run").read_bytes()
    for broken in (whole[:-20], whole.replace(b'"began"', b'"begun"'), whole[:200] + b"x" + whole[201:], b""):
        (killed_servers.home / "broken.run").write_bytes(broken)
        assert (await say(killed_servers, "runs", "import", "broken.run"))[0] == 2
    code, out, _ = await say(killed_servers, "runs", "import", "moved.run")
    assert (code, killed_servers.interrupted()) == (0, [run])
    code, out, _ = await say(killed_servers, "runs", "list", "-o", "json")
    (info,) = json.loads(out)["runs"]
    assert (info["run"], info["status"], info["resumable"]) == (run, "interrupted", True)
    _, out, _ = await say(killed_servers, "answer", run, "Ann", "-o", "json")
    assert json.loads(out)["left"] is True
    code, out, _ = await say(killed_servers, "resume", "--no-input")
    assert (code, out) == (0, "Ann: <THINK Ann>\n")
