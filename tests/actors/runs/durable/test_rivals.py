"""What users of other programs met when a run was killed, by the numbers of the list of such cases (1 to 4, and 40)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels, Reply, Request
from support.http_server import Serve, serve
from support.waiting import until

sys.path.insert(0, str(Path(__file__).parent))

from everything import DO, KilledRun
from lives import Lives

import callboard
from callboard.actors.runs.sessions.store import SessionStore
from callboard.protocol.events import Event, ToolFinished
from callboard.protocol.kernel.questions import Question

__all__ = ["serve"]

CLERK = "name: clerk\ninstructions: CLERK\nglobal_tools: [execute_command]\ncan_ask_user: false\n"


def check_strict(messages: list[dict[str, Any]]) -> None:
    """As strict providers do: each call has its result right behind it, and no result stands alone."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, "a call without its result"
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
    assert not waiting


class Clerk(KilledRun):
    """An agent that does one thing to the world when it is asked to work, in a session."""

    def write(self, config: Path) -> None:
        home = config / "agents" / "clerk"
        home.mkdir(parents=True)
        (home / "config.yaml").write_text(CLERK)
        self._models.answer_with(self._say)

    def _say(self, request: Request) -> Reply:
        messages = request.json["messages"]
        check_strict(messages)
        if messages[-1]["role"] == "user" and messages[-1]["content"] == "work":
            return Reply(calls=[("execute_command", {"command": DO.format(name="work", world=self.world)})])
        return Reply(text=f"after {len(messages)} messages")

    async def ask(self, prompt: str, **order: Any) -> dict[str, Any] | None:
        return await self.play(target="clerk", prompt=prompt, session="s", **order)

    def session(self) -> list[dict[str, Any]]:
        """What is in the file of the session."""
        store = SessionStore(self.config)
        id = store.resolve_alias("s", "clerk")
        assert id is not None
        return [message for message in store.open(id, "clerk").session.messages if message["role"] != "system"]


@pytest.fixture
def clerk(tmp_path: Path, fake_model: FakeModels) -> Clerk:
    return Clerk(tmp_path, fake_model)


def told_unknown(messages: list[dict[str, Any]]) -> int:
    return sum("unknown" in json.dumps(message) for message in messages)


async def test_1_a_kill_between_a_call_and_its_result_leaves_a_valid_history_and_the_call_is_told_as_unknown(
    clerk: Clerk,
) -> None:
    assert await clerk.ask("hello", id="run-0") is not None
    clerk.kill_in("work")
    assert await clerk.ask("work") is None
    assert await clerk.ask("and now?", id="run-2") is not None  # strict: see `_say`
    assert told_unknown(clerk.session()) == 0
    said = await clerk.play(resume=True)
    assert said is not None
    assert said.get("error") is None
    assert told_unknown(clerk.session()) == 1
    assert await clerk.ask("and then?", id="run-3") is not None
    assert clerk.effects == {"work": 1}


async def test_2_killed_and_opened_again_four_times_it_is_mended_once(clerk: Clerk) -> None:
    clerk.kill_in("work")
    assert await clerk.ask("work") is None
    rows = len(clerk.rows())
    for more in range(1, 5):
        assert await clerk.play(resume=True, kill=1) is None
        assert len(clerk.rows()) == rows + more  # that another process goes on with it, and nothing else
    assert await clerk.play(resume=True) is not None
    assert told_unknown(clerk.session()) == 1
    assert [message["role"] for message in clerk.session()] == ["user", "tool", "assistant"]
    assert clerk.effects == {"work": 1}
    before = clerk.session()
    assert await clerk.ask("and now?", id="run-2") is not None
    assert clerk.session()[: len(before)] == before


async def test_3_a_client_that_goes_amid_a_call_leaves_a_session_that_a_strict_provider_takes(
    serve: Serve, fake_model: FakeModels, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"

    def answer(request: Request) -> Reply:
        check_strict(request.json["messages"])
        if request.prompt == "work" and not request.results:
            command = f"touch {tmp_path}/began; until [ -e {go_on} ]; do sleep 0.05; done; echo made"
            return Reply(calls=[("execute_command", {"command": command})])
        return Reply(text="said")

    fake_model.answer_with(answer)
    async with serve(permissions={"execute_command": "allow"}) as api_server:
        api_server.agent_runner.plain(CLERK.replace("name: clerk\n", ""), name="clerk")
        session = (await api_server.post("/v1/sessions", {"agent": "clerk"}, 201))["id"]
        where = f"/v1/sessions/{session}"
        headers = {"accept": "text/event-stream"}
        async with api_server.client.stream("POST", f"{where}/completions", json={"prompt": "work"}, headers=headers):
            await until(lambda: (tmp_path / "began").exists(), 60)
        go_on.touch()
        reply = await api_server.post(f"{where}/completions", {"prompt": "and now?"})
    assert "said" in json.dumps(reply)
    check_strict(fake_model.requests[-1].json["messages"])


async def test_4_results_of_tools_that_were_shown_are_in_the_history_byte_for_byte(
    tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = Lives(tmp_path, fake_model, monkeypatch)
    home = lives.config / "agents" / "clerk"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text(CLERK)
    odd = r"printf 'a\tb\r\n\303\244 \360\237\231\202 \001 {\"x\": 1}\n\n'"
    calls = [
        [("execute_command", {"command": odd})],
        [("execute_command", {"command": f"[ -e {tmp_path}/go ] || sleep 60"})],
    ]
    fake_model.answer_with(
        lambda request: Reply(calls=calls[len(request.results)]) if len(request.results) < 2 else Reply(text="over")
    )
    second = [0]

    def amid_the_second(event: Any) -> bool:
        second[0] += event.kind == "tool.call.started"
        return second[0] == 2

    await lives.begin("clerk", until=amid_the_second, yes=True)
    shown = next(event.data for event in lives.events if isinstance(event.data, ToolFinished))
    before = fake_model.requests[-1].results[0]
    (tmp_path / "go").touch()
    outcome = await lives.go_on()
    assert outcome.output == "over"
    last = fake_model.requests[-1]
    assert last.results[0] == before
    assert "🙂" in before
    assert shown.result == before
    assert len(last.results) == 2


async def test_40_of_two_calls_at_once_one_is_allowed_before_a_restart_and_one_after_and_each_is_made_once(
    tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = Lives(tmp_path, fake_model, monkeypatch)
    home = lives.config / "agents" / "clerk"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text(CLERK + "permissions: {execute_command: ask}\n")
    world = tmp_path / "world"
    calls = [("execute_command", {"command": f"echo {name} >> {world}"}) for name in ("one", "two")]
    fake_model.answer_with(lambda request: Reply(text="over") if request.results else Reply(calls=calls))

    class OneEach:
        """Allows the call that has this word, and no other."""

        name = "person"

        def __init__(self, root: callboard.Root, word: str) -> None:
            self.root, self.word = root, word
            self.seen: list[str] = []

        def asked(self, question: Question) -> None:
            self.seen.append(question.text)
            if f"echo {self.word}" in question.text:
                self.root.kernel.questions.answer(question.id, "yes", by="person")

        def closed(self, question_id: str, by: str) -> None:
            pass

    async with callboard.Root(config_dir=lives.config) as root:

        def heard(event: Event) -> None:
            if isinstance(event.data, ToolFinished):
                root.begin_stop()

        with root.kernel.questions.attach(OneEach(root, "one")):
            await callboard.run("clerk", "work", durable=True, id="run-1", on_event=heard, root=root)
    assert world.read_text() == "one\n"
    async with callboard.Root(config_dir=lives.config) as root:
        person = OneEach(root, "two")
        with root.kernel.questions.attach(person):
            outcome = await callboard.resume("run-1", root=root)
    assert outcome.output == "over"
    assert sorted(world.read_text().split()) == ["one", "two"]
    assert [text for text in person.seen if "echo one" in text] == []
