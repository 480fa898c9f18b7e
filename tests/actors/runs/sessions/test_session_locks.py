"""Live sessions: turns one after another, what is said is kept whatever ends the run, nobody writes over anybody."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.messages import says

import callboard
from callboard.actors.runs.loading import RunCallbacks
from callboard.actors.runs.session_run import say
from callboard.actors.runs.sessions.session_locks import IDLE
from callboard.actors.runs.sessions.summary import too_long
from callboard.actors.work.spending.book import BookFile, SpendingBook
from callboard.protocol.chat import AssistantTurn, Turn, UserTurn
from callboard.protocol.errors import ConfigError, Conflict, ModelError, NotFound, UsageError
from callboard.protocol.requests import RunRequest
from callboard.protocol.session import Session, turns_of

HOLDS = """
import sys
from pathlib import Path
from callboard.actors.runs.sessions.store import SessionStore

lock = SessionStore(Path(sys.argv[1])).try_hold(sys.argv[2])
print("held" if lock else "refused", flush=True)
sys.stdin.read()
"""


def echo(request: Request) -> str:
    return f"re: {request.prompt}"


async def said(agent_runner: AgentRunner, name: str, agent: str | None = None) -> list[str]:
    """The texts of a session's file."""
    stored = await agent_runner.root.sessions.get(None, name, agent=agent)
    return [turn.content if isinstance(turn, UserTurn) else turn.text for turn in turns_of(stored.session)]  # type: ignore[union-attr,misc]  # no tools here


async def test_a_conversation_goes_on_where_it_was_left(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: Be brief.", name="clerk")
    agent_runner.models.answer_with(echo)
    speak = partial(say, agent_runner.root, None, "work", agent="clerk")
    assert (await speak(RunRequest(target="clerk", prompt="one"))).output == "re: one"
    async with callboard.Root(config_dir=agent_runner.config_dir) as another:
        outcome = await say(another, None, "work", RunRequest(target="clerk", prompt="two"), agent="clerk")
    assert outcome.output == "re: two"
    assert await said(agent_runner, "work", "clerk") == ["one", "re: one", "two", "re: two"]
    last = agent_runner.models.requests[-1].json["messages"]
    assert [message["role"] for message in last] == ["system", "user", "assistant", "user"]
    assert await speak(RunRequest(target="clerk", prompt="three"))
    assert await said(agent_runner, "work", "clerk") == ["one", "re: one", "two", "re: two", "three", "re: three"]


async def test_case_103_a_hundred_who_speak_at_once_lose_nothing(agent_runner: AgentRunner) -> None:
    agent_runner.models.answer_with(echo)
    made = await agent_runner.root.sessions.create(None, alias="busy")
    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(
                partial(say, agent_runner.root, None, made.id, RunRequest(prompt=f"msg-{number}"), compress=False)
            )
    texts = await said(agent_runner, "busy")
    assert len(texts) == 200
    assert all(answer == f"re: {asked}" for asked, answer in zip(texts[::2], texts[1::2], strict=True))
    assert sorted(texts[::2]) == sorted(f"msg-{number}" for number in range(100))


async def test_turns_come_in_the_order_of_the_asking(agent_runner: AgentRunner) -> None:
    sessions, order = agent_runner.root.sessions, []
    made = await sessions.create(None)
    first = trio.Event()

    async def hold() -> None:
        async with sessions.turn(None, made.id):
            first.set()
            await trio.testing.wait_all_tasks_blocked(0.02)

    async def take(number: int) -> None:
        async with sessions.turn(None, made.id):
            order.append(number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold)
        await first.wait()
        for number in range(5):
            nursery.start_soon(take, number)
            while len(sessions._actor(made.id).mailbox.mail or ()) <= number:
                await trio.lowlevel.checkpoint()
    assert order == [0, 1, 2, 3, 4]


async def test_who_gives_up_waiting_holds_nobody_up(agent_runner: AgentRunner) -> None:
    sessions = agent_runner.root.sessions
    made = await sessions.create(None)
    async with sessions.turn(None, made.id):
        with trio.move_on_after(0.05) as patience:
            async with sessions.turn(None, made.id):
                raise AssertionError("two have the turn")
        assert patience.cancelled_caught
        with pytest.raises(Conflict, match=says("runs.sessions.session_locks.Sessions._refuse_busy")):
            await sessions.delete(None, made.id)
        with pytest.raises(Conflict, match=says("runs.sessions.session_locks.Sessions._refuse_busy")):
            await sessions.empty(None, made.id)
    async with sessions.turn(None, made.id):
        pass
    await sessions.delete(None, made.id)


async def test_another_process_that_works_with_it_is_named_or_waited_for(agent_runner: AgentRunner) -> None:
    sessions = agent_runner.root.sessions
    made = await sessions.create(None, alias="shared")
    told: list[str] = []
    command = [sys.executable, "-c", HOLDS, str(agent_runner.config_dir), made.id]
    with trio.fail_after(60):
        holder = await trio.lowlevel.open_process(command, stdin=-1, stdout=-1)
        assert holder.stdout is not None
        assert holder.stdin is not None
        heard = b""
        while not heard.endswith(b"\n"):
            heard += await holder.stdout.receive_some(10)
        assert heard == b"held\n"
        in_use, by = "runs.sessions.store.SessionStore.in_use", f"process {holder.pid}…"
        with pytest.raises(Conflict, match=says(in_use, label="shared", by=by)):
            await say(agent_runner.root, None, "shared", RunRequest(prompt="hi"))
        with pytest.raises(Conflict, match=says("runs.sessions.store.SessionStore.in_use")):
            await sessions.delete(None, "shared")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                partial(
                    say,
                    agent_runner.root,
                    None,
                    "shared",
                    RunRequest(prompt="hi"),
                    wait=60,
                    on_wait=lambda busy: told.append(str(busy)),
                )
            )
            while not told:
                await trio.sleep(0.01)
            await holder.stdin.aclose()
        await holder.wait()
        await holder.stdout.aclose()
    assert await said(agent_runner, "shared") == ["hi", "ok"]
    assert len(told) == 1


async def test_a_run_that_is_cancelled_leaves_what_was_said(agent_runner: AgentRunner) -> None:
    held = trio.Event()
    agent_runner.plain("global_tools: [fs_ls]", name="clerk")
    agent_runner.models.script(
        Reply(text="looking", calls=[("fs_ls", {"path": "."})]), Reply(text="par", piece=3, hold=held)
    )
    with trio.move_on_after(60) as scope:
        await say(
            agent_runner.root,
            None,
            "work",
            RunRequest(target="clerk", prompt="go"),
            RunCallbacks(on_event=lambda event: scope.cancel() if event.kind == "tool.call.finished" else None),
            agent="clerk",
        )
    assert scope.cancelled_caught
    stored = await agent_runner.root.sessions.get(None, "work", agent="clerk")
    asked, looking, listing = turns_of(stored.session)
    assert asked == UserTurn("go")
    assert isinstance(looking, AssistantTurn)
    assert (looking.text, looking.tool_calls[0].name) == ("looking", "fs_ls")
    assert listing.call == looking.tool_calls[0].id  # type: ignore[union-attr]  # a result


async def test_the_end_of_the_root_leaves_what_was_said(agent_runner: AgentRunner) -> None:
    agent_runner.plain("global_tools: [fs_ls]", name="clerk")
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        agent_runner.models.script(Reply(text="looking", calls=[("fs_ls", {"path": "."})]))
        agent_runner.models.answer_with(lambda _: Reply(hold=trio.Event()))
        await say(
            root,
            None,
            "work",
            RunRequest(target="clerk", prompt="go"),
            RunCallbacks(on_event=lambda event: root.begin_stop() if event.kind == "tool.call.finished" else None),
            agent="clerk",
        )
    stored = await agent_runner.root.sessions.get(None, "work", agent="clerk")
    assert [message["role"] for message in stored.session.messages] == ["user", "tool"]


async def test_a_turn_that_brought_nothing_leaves_no_session_behind(agent_runner: AgentRunner) -> None:
    agent_runner.plain("", name="clerk")
    agent_runner.models.script(Reply(status=400, error="no"))
    outcome = await say(agent_runner.root, None, "new", RunRequest(target="clerk", prompt="hi"), agent="clerk")
    assert outcome.status == "failed"
    with pytest.raises(ConfigError):
        await say(
            agent_runner.root, None, "new", RunRequest(target="clerk", prompt="hi", model="nobody:x"), agent="clerk"
        )
    assert await agent_runner.root.sessions.list(None) == []


async def test_save_session_false_reads_and_keeps_nothing(agent_runner: AgentRunner) -> None:
    speak = partial(say, agent_runner.root)
    await speak(None, "quiet", RunRequest(prompt="one"))
    await speak(None, "quiet", RunRequest(prompt="two"), keep=False)
    assert len(agent_runner.models.requests[-1].json["messages"]) == 3
    assert await said(agent_runner, "quiet") == ["one", "ok"]
    path = agent_runner.root.sessions.store.path((await agent_runner.root.sessions.get(None, "quiet")).id)
    path.write_text("save_session: false\n" + path.read_text())
    await speak(None, "quiet", RunRequest(prompt="three"))
    assert await said(agent_runner, "quiet") == ["one", "ok"]
    await speak(None, "quiet", RunRequest(prompt="four"), keep=True)
    assert await said(agent_runner, "quiet") == ["one", "ok", "four", "ok"]


async def test_of_a_graph_the_prompt_and_the_output_are_kept(agent_runner: AgentRunner) -> None:
    agent_runner.agent(
        """
        start: a
        nodes:
          a: {type: script, script: a.sh, state_updates: {x: "{{output.x}}"}, next: b}
          b: {type: end, output: "out: {{initial_prompt}}"}
        """,
        a="echo '{\"x\": 1}'",
    )
    outcome = await say(agent_runner.root, None, "work", RunRequest(target="g", prompt="hi"), agent="g")
    assert outcome.output == "out: hi"
    assert await said(agent_runner, "work", "g") == ["hi", "out: hi"]


async def test_variables_and_the_model_stay_with_the_session(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: '{{tone}}'\nvariables: [{name: tone, description: how}]", name="clerk")
    speak = partial(say, agent_runner.root, None, "work", agent="clerk")
    with pytest.raises(UsageError, match="tone"):
        await speak(RunRequest(target="clerk", prompt="hi"))
    dry = {"tone": "Be dry."}
    await speak(RunRequest(target="clerk", prompt="hi", variables=dry, model="fake:other"))
    await speak(RunRequest(target="clerk", prompt="hi"))
    assert [request.system.startswith("Be dry.") for request in agent_runner.models.requests] == [True, True]
    assert [request.json["model"] for request in agent_runner.models.requests] == ["other", "other"]


async def test_a_session_of_another_agent_is_refused(agent_runner: AgentRunner) -> None:
    made = await agent_runner.root.sessions.create(None, agent="clerk")
    agent_runner.plain("", name="other")
    with pytest.raises(UsageError, match="belongs to agent 'clerk', so 'other' can't continue it"):
        await say(agent_runner.root, None, made.id, RunRequest(target="other", prompt="hi"), agent="other")


async def test_with_compat_loki_a_long_session_is_compressed_after_the_turn(agent_runner: AgentRunner) -> None:
    agent_runner.root.settings.other["compat"] = "loki"
    sessions = agent_runner.root.sessions
    await say(agent_runner.root, None, "long", RunRequest(prompt="x" * 12_000))
    agent_runner.models.script("fine", "it was about x")
    await say(agent_runner.root, None, "long", RunRequest(prompt="y" * 8_000))
    stored = await sessions.get(None, "long")
    assert [message["role"] for message in stored.session.messages] == ["system"]
    assert stored.session.messages[0]["content"] == "This is a summary of the chat history as a recap: it was about x"
    assert len(stored.session.compressed_messages) == 4
    await say(agent_runner.root, None, "long", RunRequest(prompt="and now?"))
    asked = agent_runner.models.requests[-1].json["messages"]
    assert [str(message["content"])[:4] for message in asked if message["role"] == "user"] == ["This", "yyyy", "and "]
    whole = await sessions.export(None, "long")
    assert [line for line in whole.splitlines() if line.startswith("## ")] == ["## User", "## Agent"] * 3


@pytest.mark.parametrize(("window", "is_compressed"), [(None, False), (8_000, False), (6_000, True)])
async def test_a_session_is_compressed_at_four_fifths_of_its_models_window(
    agent_runner: AgentRunner, window: int | None, is_compressed: bool
) -> None:
    settings = json.loads(agent_runner.models.config())
    settings["clients"][0]["models"] = [{"name": "model", **({"max_input_tokens": window} if window else {})}]
    (agent_runner.config_dir / "config.yaml").write_text(json.dumps(settings))
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        await say(root, None, "long", RunRequest(prompt="x" * 12_000))
        await say(root, None, "long", RunRequest(prompt="y" * 8_000))  # 5,000 tokens by estimate
        stored = await root.sessions.get(None, "long")
    assert bool(stored.session.compressed_messages) is is_compressed


async def test_the_window_of_a_model_that_no_settings_describe_is_that_of_the_table_of_prices(
    agent_runner: AgentRunner,
) -> None:
    session = Session(messages=[{"role": "user", "content": "x" * 500_000}])  # 125,000 tokens of 128,000
    root, settings = agent_runner.root, agent_runner.root.settings
    assert await too_long(root, session, None, "openai:gpt-4o", settings)
    assert not await too_long(root, session, None, "openai:gpt-4.1", settings)
    assert not await too_long(root, session, 0, "openai:gpt-4o", settings)  # an agent's file says never


async def test_a_summary_and_a_title_are_in_the_book_as_their_agents_and_owners(
    agent_runner: AgentRunner, tmp_path: Path
) -> None:
    agent_runner.plain("compression_threshold: 10", name="clerk")
    agent_runner.root.settings.other["save_session"] = True
    book = agent_runner.root.book = SpendingBook(
        agent_runner.root.kernel, BookFile(tmp_path / "usage.db"), now=time.time
    )
    id = (await agent_runner.root.sessions.create(None, agent="clerk")).id
    await say(agent_runner.root, None, id, RunRequest(target="clerk", prompt="x" * 400), agent="clerk")
    assert len(agent_runner.models.requests) == 3, "the turn, a title and a summary"
    assert {entry: spent.requests for entry, spent in (await book.read(by=("key", "agent"))).items()} == {
        ("local", "clerk"): 3
    }


async def test_a_session_with_the_threshold_0_is_never_compressed(agent_runner: AgentRunner) -> None:
    agent_runner.plain("compression_threshold: 0", name="clerk")
    await say(agent_runner.root, None, "long", RunRequest(target="clerk", prompt="x" * 40_000), agent="clerk")
    assert len(agent_runner.models.requests) == 1


async def test_compression_that_fails_leaves_the_session_as_it_is(agent_runner: AgentRunner) -> None:
    sessions = agent_runner.root.sessions
    await say(agent_runner.root, None, "short", RunRequest(prompt="hi"))
    agent_runner.models.script(Reply(status=400, error="no"))
    with pytest.raises(ModelError):
        await sessions.compress(None, "short")
    assert await said(agent_runner, "short") == ["hi", "ok"]
    assert await sessions.compress(None, "short")
    assert not await sessions.compress(None, "short")


async def test_empty_forgets_what_was_said_and_keeps_the_rest(agent_runner: AgentRunner) -> None:
    sessions = agent_runner.root.sessions
    await say(agent_runner.root, None, "x", RunRequest(prompt="hi", model="fake:other"))
    await sessions.empty(None, "x")
    stored = await sessions.get(None, "x")
    assert (stored.session.messages, stored.session.model, stored.session.title) == ([], "fake:other", "hi")


async def test_what_an_editor_has_changed_between_turns_counts(agent_runner: AgentRunner) -> None:
    sessions = agent_runner.root.sessions
    await say(agent_runner.root, None, "x", RunRequest(prompt="hi"))
    path = sessions.store.path((await sessions.get(None, "x")).id)
    path.write_text(path.read_text().replace("content: hi", "content: hullo"))
    await say(agent_runner.root, None, "x", RunRequest(prompt="again"))
    assert await said(agent_runner, "x") == ["hullo", "ok", "again", "ok"]


async def test_what_an_editor_has_changed_during_a_turn_is_not_lost(agent_runner: AgentRunner) -> None:
    sessions = agent_runner.root.sessions
    await say(agent_runner.root, None, "x", RunRequest(prompt="hi"))
    path = sessions.store.path((await sessions.get(None, "x")).id)

    def edit(_: Request) -> str:
        path.write_text(path.read_text().replace("content: hi", "content: hullo there"))
        return "ok"

    agent_runner.models.answer_with(edit)
    await say(agent_runner.root, None, "x", RunRequest(prompt="again"))
    assert await said(agent_runner, "x") == ["hullo there", "ok", "again", "ok"]


async def test_the_export_as_json_holds_all(agent_runner: AgentRunner) -> None:
    await say(agent_runner.root, None, "x", RunRequest(prompt="hi"))
    told = json.loads(await agent_runner.root.sessions.export(None, "x", form="json"))
    assert [message["content"] for message in told["messages"]] == ["hi", "ok"]
    assert (told["alias"], told["_meta"]["owner"]) == ("x", "local")


async def test_a_session_nobody_asks_for_is_forgotten_and_found_again(
    agent_runner: AgentRunner, autojump_clock: trio.testing.MockClock
) -> None:
    sessions = agent_runner.root.sessions
    made = await sessions.create(None)
    async with sessions.turn(None, made.id):
        assert sessions.live == 1
    await trio.sleep(IDLE + 1)
    assert sessions.live == 0
    async with sessions.turn(None, made.id):
        assert sessions.live == 1


async def test_a_session_deleted_by_another_process_is_missed(agent_runner: AgentRunner) -> None:
    sessions = agent_runner.root.sessions
    made = await sessions.create(None)
    async with sessions.turn(None, made.id):
        pass
    sessions.store.delete(made.id)
    with pytest.raises(NotFound):
        async with sessions.turn(None, made.id):
            pass


async def test_run_takes_a_history_and_tells_the_new_one(agent_runner: AgentRunner, tmp_path: Path) -> None:
    kept: list[list[Turn]] = []
    agent_runner.plain("", name="clerk")
    history = [UserTurn("one"), AssistantTurn("two")]
    await agent_runner.run("three", target="clerk", history=history, on_history=lambda turns: kept.append(list(turns)))
    assert kept == [[*history, UserTurn("three"), AssistantTurn("ok")]]
    agent_runner.models.script(Reply(status=400, error="no"))
    await agent_runner.run("three", target="clerk", history=history, on_history=lambda turns: kept.append(list(turns)))
    assert len(kept) == 1
