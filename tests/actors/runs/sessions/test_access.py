"""Who may do what with whose session (rules of phase 6)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from support.agent_runs import AgentRunner
from support.messages import says

from callboard.actors.runs.session_run import say
from callboard.actors.runs.sessions.store import Stored
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.errors import Conflict, Denied, NotFound
from callboard.protocol.requests import RunRequest

RIGHTS = frozenset({"read:sessions", "write:sessions"})
ALICE, BOB = Caller("alice", RIGHTS, key="key-1"), Caller("bob", RIGHTS)
ADMIN = Caller("root", RIGHTS | {"admin:sessions"})


async def test_a_session_belongs_to_who_made_it(agent_runner: AgentRunner) -> None:
    sessions = agent_runner.root.sessions
    made = await sessions.create(ALICE, alias="hers")
    stored: Stored = await sessions.get(ALICE, made.id)
    assert (stored.session.meta.owner, stored.session.meta.created_by_key_id) == ("alice", "key-1")
    assert stored.session.meta.created_at == made.created_at is not None
    tries: list[Callable[[], Awaitable[object]]] = [
        lambda: sessions.get(BOB, made.id),
        lambda: sessions.get(BOB, "hers"),
        lambda: sessions.export(BOB, made.id),
        lambda: sessions.rename(BOB, made.id, "his"),
        lambda: sessions.empty(BOB, made.id),
        lambda: sessions.delete(BOB, made.id),
        lambda: sessions.compress(BOB, made.id),
        lambda: sessions.set_owner(BOB, made.id, "bob"),
        lambda: say(agent_runner.root, BOB, made.id, RunRequest(prompt="hi")),
        lambda: say(agent_runner.root, BOB, "hers", RunRequest(prompt="hi")),
    ]
    for refused in tries:
        with pytest.raises(Denied, match=says("runs.sessions.store.check_read")):
            await refused()
    assert [meta.id for meta in await sessions.list(BOB)] == []
    assert [meta.id for meta in await sessions.list(ALICE)] == [made.id]


async def test_who_has_the_scope_for_it_and_who_sits_at_the_machine_may_do_all(agent_runner: AgentRunner) -> None:
    sessions = agent_runner.root.sessions
    made = await sessions.create(ALICE)
    for caller in (ADMIN, LOCAL, None):
        assert [meta.id for meta in await sessions.list(caller)] == [made.id]
        await sessions.empty(caller, made.id)
    await sessions.set_owner(ADMIN, made.id, "bob")
    assert (await sessions.get(BOB, made.id)).session.meta.owner == "bob"
    with pytest.raises(Denied):
        await sessions.get(ALICE, made.id)


async def test_one_without_an_owner_is_read_by_all_and_belongs_to_who_changes_it_first(
    agent_runner: AgentRunner,
) -> None:
    sessions = agent_runner.root.sessions
    old = agent_runner.config_dir / "sessions" / "old.yaml"
    old.parent.mkdir(parents=True)
    old.write_text("messages:\n- role: user\n  content: hi\n")
    (listed,) = await sessions.list(BOB)
    assert (await sessions.get(BOB, listed.id)).session.meta.owner is None
    assert (await sessions.get(ALICE, "old")).session.meta.owner is None
    await sessions.rename(ALICE, "old", "hers")
    assert (await sessions.get(ALICE, "hers")).session.meta.owner == "alice"
    with pytest.raises(Denied):
        await sessions.get(BOB, listed.id)


async def test_without_the_scopes_there_is_nothing_to_be_had(agent_runner: AgentRunner) -> None:
    sessions = agent_runner.root.sessions
    nobody, reader = Caller("alice", frozenset()), Caller("alice", frozenset({"read:sessions"}))
    made = await sessions.create(ALICE)
    for refused in (lambda: sessions.list(nobody), lambda: sessions.get(nobody, made.id)):
        with pytest.raises(Denied, match="read:sessions"):
            await refused()
    await sessions.get(reader, made.id)
    for refused in (
        lambda: sessions.create(reader),
        lambda: sessions.delete(reader, made.id),
        lambda: say(agent_runner.root, reader, made.id, RunRequest(prompt="x")),
        lambda: say(agent_runner.root, reader, "unheard-of", RunRequest(prompt="x")),
    ):
        with pytest.raises(Denied, match="write:sessions"):
            await refused()


async def test_errors_of_names_are_the_same_for_all(agent_runner: AgentRunner) -> None:
    sessions = agent_runner.root.sessions
    await sessions.create(ALICE, alias="x")
    with pytest.raises(Conflict):
        await sessions.create(BOB, alias="x")
    with pytest.raises(NotFound):
        await sessions.get(ALICE, "y")
