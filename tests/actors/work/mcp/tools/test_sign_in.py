"""A person is asked to sign in, in the middle of a run: once for all agents, and only where it is their own process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from support.auth_server import visit
from support.mcp_processes import McpProcesses
from support.mcp_protected import ProtectedServers, serve_protected
from support.messages import has_message, says
from support.tool_families import Person, context_of

from callboard.actors.work.mcp.auth.sign_in import sign_in
from callboard.actors.work.mcp.tools.view import ServersView, ServerView
from callboard.protocol.errors import McpSignInNeeded, ToolFailed
from callboard.protocol.kernel.questions import Question
from callboard.supervisors import Root


class AtTheBrowser(Person):
    """Opens the page that a question names, and says yes there; `pastes` where it ends, or says `says` instead."""

    def __init__(
        self,
        protected_servers: ProtectedServers,
        nursery: trio.Nursery,
        root: Root,
        *,
        pastes: bool = False,
        says: str = "",
    ) -> None:
        super().__init__()
        self._servers = protected_servers
        self._nursery = nursery
        self._root = root
        self._pastes = pastes
        self._says = says

    def asked(self, question: Question) -> None:
        super().asked(question)
        url = next(line for line in question.text.splitlines() if line.startswith("http"))
        if self._says:
            self._nursery.start_soon(self._answer, question.id, self._says)
        elif self._pastes and question.problem is None:
            self._nursery.start_soon(self._answer, question.id, "https://elsewhere.example/?code=x&state=y")
        elif self._pastes:
            self._nursery.start_soon(self._answer, question.id, self._servers.auth.redirect(url))
        else:
            self._nursery.start_soon(visit, self._servers.auth.redirect(url))

    async def _answer(self, question: str, text: str) -> None:
        self._root.questions.answer(question, text, "terminal")


@pytest.fixture
async def protected_servers(nursery: trio.Nursery) -> ProtectedServers:
    return await serve_protected(nursery)


@pytest.fixture
async def mcp_processes(tmp_path: Path) -> AsyncIterator[McpProcesses]:
    async with Root() as root:
        mcp_processes = McpProcesses(root, tmp_path)
        mcp_processes.environ["XDG_STATE_HOME"] = str(tmp_path)
        with root.bus.listen(mcp_processes.events.append):
            yield mcp_processes


def view(mcp_processes: McpProcesses, protected_servers: ProtectedServers, agent: str = "/agent") -> ServerView:
    return ServerView(
        talk=ServersView(scope=mcp_processes.scope(agent), context=context_of({})), server=protected_servers.entry()
    )


async def said(view: ServerView, mcp_processes: McpProcesses, tool: str) -> str:
    result = await view.call(mcp_processes.root.actor, tool, {}, f"docs__{tool}")
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.parametrize("pastes", [False, True])
async def test_the_person_signs_in_and_the_call_is_made(
    protected_servers: ProtectedServers, mcp_processes: McpProcesses, nursery: trio.Nursery, pastes: bool
) -> None:
    mcp_processes.build(protected_servers.entry())
    person = AtTheBrowser(protected_servers, nursery, mcp_processes.root, pastes=pastes)
    with mcp_processes.root.questions.attach(person):
        assert await said(view(mcp_processes, protected_servers), mcp_processes, "read") == "read: done"
    first, *others = person.shown
    assert first.people
    assert first.secret
    assert has_message(first.text, "work.mcp.tools.view.signed_in.person.2", name="docs")
    assert [question.problem for question in others] == (
        ["the pasted URL is of another sign-in attempt (its `state` differs): paste the one of this attempt"]
        if pastes
        else []
    )
    assert mcp_processes.root.questions.open == ()


async def test_fifty_agents_are_one_question(
    protected_servers: ProtectedServers, mcp_processes: McpProcesses, nursery: trio.Nursery
) -> None:
    mcp_processes.build(protected_servers.entry())
    person = AtTheBrowser(protected_servers, nursery, mcp_processes.root)
    done: list[str] = []

    async def agent(number: int) -> None:
        done.append(await said(view(mcp_processes, protected_servers, f"/agent-{number}"), mcp_processes, "read"))

    with mcp_processes.root.questions.attach(person):
        async with trio.open_nursery() as agents:
            for number in range(50):
                agents.start_soon(agent, number)
    assert (len(done), len(person.shown), len(protected_servers.registered)) == (50, 1, 1)


async def test_more_scopes_are_asked_for_by_name_together_with_those_there_are(
    protected_servers: ProtectedServers, mcp_processes: McpProcesses, nursery: trio.Nursery, tmp_path: Path
) -> None:
    protected_servers.needs = {"write": {"files:write"}, "delete": {"files:delete"}}
    await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)
    mcp_processes.build(protected_servers.entry())
    person = AtTheBrowser(protected_servers, nursery, mcp_processes.root)
    one = view(mcp_processes, protected_servers)
    with mcp_processes.root.questions.attach(person):
        assert await said(one, mcp_processes, "read") == "read: done"
        assert person.shown == []
        assert await said(one, mcp_processes, "write") == "write: done"
        assert has_message(person.shown[-1].text, "work.mcp.tools.view.signed_in.person", scopes="files:write.…")
        assert "scope=read+files%3Awrite&" in person.shown[-1].text
        assert await said(one, mcp_processes, "delete") == "delete: done"
        assert "scope=read+files%3Awrite+files%3Adelete&" in person.shown[-1].text
    assert len(person.shown) == 2


async def test_a_server_that_always_wants_more_is_given_up(
    protected_servers: ProtectedServers, mcp_processes: McpProcesses, nursery: trio.Nursery, tmp_path: Path
) -> None:
    protected_servers.needs = {"write": {"never-granted"}}
    await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)
    issue = protected_servers.auth.answer

    def narrow(fields: dict[str, Any]) -> dict[str, Any]:
        protected_servers.auth.grants[-1].scopes = "read"
        return issue({**fields, "scope": "read"})

    protected_servers.auth.answer = narrow
    mcp_processes.build(protected_servers.entry())
    person = AtTheBrowser(protected_servers, nursery, mcp_processes.root)
    with mcp_processes.root.questions.attach(person), pytest.raises(ToolFailed, match="never-granted"):
        await said(view(mcp_processes, protected_servers), mcp_processes, "write")
    assert len(person.shown) == 2


async def test_who_says_no_is_not_asked_again(
    protected_servers: ProtectedServers, mcp_processes: McpProcesses, nursery: trio.Nursery
) -> None:
    mcp_processes.build(protected_servers.entry())
    person = AtTheBrowser(protected_servers, nursery, mcp_processes.root, says="/decline")
    with mcp_processes.root.questions.attach(person):
        for _ in range(3):
            with pytest.raises(ToolFailed, match="sign in: " + says("work.mcp.auth.access.remedy", name="docs")):
                await said(view(mcp_processes, protected_servers), mcp_processes, "read")
    assert len(person.shown) == 1
    (warning,) = mcp_processes.of("run.warning")
    assert warning.code == "mcp_sign_in"
    assert has_message(warning.message, "io.oauth.authorization._pasted.2")


async def test_without_a_person_nothing_is_asked_or_registered(
    protected_servers: ProtectedServers, mcp_processes: McpProcesses
) -> None:
    mcp_processes.build(protected_servers.entry())
    with pytest.raises(ToolFailed, match="sign in: " + says("work.mcp.auth.access.remedy", name="docs")):
        await said(view(mcp_processes, protected_servers), mcp_processes, "read")
    with pytest.raises(McpSignInNeeded):
        await view(mcp_processes, protected_servers).tools(mcp_processes.root.actor)
    assert (protected_servers.registered, protected_servers.auth.requests) == ([], [])


async def test_callers_of_a_server_don_t_sign_it_in(
    protected_servers: ProtectedServers, mcp_processes: McpProcesses, nursery: trio.Nursery
) -> None:
    mcp_processes.build(protected_servers.entry(), serving=True)
    person = AtTheBrowser(protected_servers, nursery, mcp_processes.root)
    with (
        mcp_processes.root.questions.attach(person),
        pytest.raises(ToolFailed, match=says("work.mcp.auth.access.remedy", name="docs")),
    ):
        await said(view(mcp_processes, protected_servers), mcp_processes, "read")
    assert (person.shown, protected_servers.registered) == ([], [])


async def test_its_tools_are_listed_after_a_sign_in(
    protected_servers: ProtectedServers, mcp_processes: McpProcesses, nursery: trio.Nursery
) -> None:
    mcp_processes.build(protected_servers.entry())
    with mcp_processes.root.questions.attach(AtTheBrowser(protected_servers, nursery, mcp_processes.root)):
        tools = await view(mcp_processes, protected_servers).tools(mcp_processes.root.actor)
    assert [tool.name for tool in tools] == ["read", "write", "delete"]


async def test_the_call_s_time_stands_still_meanwhile(
    protected_servers: ProtectedServers,
    mcp_processes: McpProcesses,
    nursery: trio.Nursery,
    tmp_path: Path,
    mock_clock: trio.testing.MockClock,
) -> None:
    mock_clock.rate = 1.0
    protected_servers.needs = {"write": {"files:write"}}
    await sign_in(protected_servers.entry(), protected_servers.store(tmp_path), {}, protected_servers.person)
    mcp_processes.build(protected_servers.entry(timeout_seconds=60.0))

    class Slow(AtTheBrowser):
        def asked(self, question: Question) -> None:
            nursery.start_soon(self._later, question)

        async def _later(self, question: Question) -> None:
            mock_clock.jump(70)
            super().asked(question)

    slow = ServerView(
        talk=ServersView(scope=mcp_processes.scope(), context=context_of({})),
        server=protected_servers.entry(timeout_seconds=60.0),
    )
    with mcp_processes.root.questions.attach(Slow(protected_servers, nursery, mcp_processes.root)):
        assert await said(slow, mcp_processes, "write") == "write: done"
