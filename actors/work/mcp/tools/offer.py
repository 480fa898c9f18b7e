"""The tools of servers that one conversation is offered, and what it leases while it lasts.

    meta      three tools per server (`meta`); nothing is started before the first call
    direct    every tool by itself (`direct`)
    auto      direct, while the declarations of all of them stay within a budget of tokens; beyond that the servers
              with the most to say go to meta, until the rest fits

For direct tools the servers' lists are needed: from the cache, else from the servers, all asked at the same time. A
server that can't be asked costs its own tools only: a warning says so, and the agent works without.

Servers may change their tools while the conversation lasts: `Offering.renewed` is asked before each turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping

import msgspec
import trio

from .....protocol.errors import ActorError, CallboardError, ConfigError, GraphMistake, ToolFailed
from .....protocol.events import Warned
from .....protocol.mcp.config import ToolMode
from .....protocol.mcp.model import Tool as ServerTool
from .....protocol.permissions import Permissions as Rules
from .....protocol.problems import did_you_mean
from .....supervisors import Actor
from ...tools.tool import Arguments, Json, Tool, ToolSpec, shortened
from .chosen import Choice, Wanted
from .direct import direct_tool
from .meta import meta_tools
from .names import VERBS, legal, marked, meta_name, offered_name, other_name
from .view import Run, Talk, View

_CHARACTERS = 4
"""Of JSON, to a token; near enough for a budget."""

_LONGEST_REASON = 500
"""Characters of the reason for which a server can't be asked, in a system prompt."""


class Offered(msgspec.Struct, frozen=True, kw_only=True):
    """What a conversation may call.

    Attributes:
        tools: what the model is offered.
        unlisted: what it may call besides, by name.
        absent: why a server can't be asked, by its name.
    """

    tools: tuple[Tool, ...] = ()
    unlisted: dict[str, Tool] = {}
    absent: dict[str, str] = {}

    @property
    def said(self) -> list[str]:
        """What the model is told of the servers that can't be asked, for its system prompt."""
        return [f"The tools of MCP server '{name}' are not available: {why}" for name, why in self.absent.items()]


@contextlib.contextmanager
def servers_at_work(me: Actor, context: Run, *, own: Rules, model: str, timeout: float | None = None) -> Iterator[Talk]:
    """What the agent whose actor is `me` has of servers; given back at the end of the block, whatever ends it.

    Args:
        own: `permissions` of its file.
        model: what it talks to by default.
        timeout: seconds of a call in place of the servers' own.
    """
    assert context.mcp is not None
    with context.mcp().scope(run=me.stream.run, agent=me.path) as scope:
        yield Talk(scope=scope, context=context, own=own, model=model, timeout=timeout)


class Offering:
    """What one conversation is offered, from turn to turn.

    Args:
        taken: names that other tools have.
        node: id of the node they are for.
    """

    def __init__(self, talk: Talk, wanted: Wanted, *, taken: Container[str] = (), node: str | None = None) -> None:
        self._talk = talk
        self._wanted = wanted
        self._taken = taken
        self._node = node
        self._known: dict[str, tuple[ServerTool, ...]] = {}
        views = [(choice, View(talk=talk, server=choice.server, lists=choice.lists)) for choice in wanted.choices]
        self._views = {choice.server.name: view for choice, view in views}
        self._asked = [view for choice, view in views if _has_to_be_asked(choice, wanted.mode)]

    async def first(self, me: Actor) -> Offered:
        """The tools to begin with.

        Raises:
            GraphMistake: the node lists a tool that its server does not have.
        """
        offered, self._known = await self._collected(me, again=False)
        return offered  # with lists not of now: what has changed since then is for the next turn to see

    async def renewed(self, me: Actor) -> Offered | None:
        """The tools from now on; None if they are those that there were."""
        known = await self._lists(me)
        if known == self._known:
            return None
        self._known = known
        return (await self._collected(me, again=True))[0]

    async def _lists(self, me: Actor) -> dict[str, tuple[ServerTool, ...]]:
        """What each server has whose list matters, as far as it was ever asked."""
        found: dict[str, tuple[ServerTool, ...]] = {}

        async def look(view: View) -> None:
            tools = await view.learned(me)
            if tools is not None:
                found[view.server.name] = tuple(tools)

        async with trio.open_nursery() as nursery:
            for view in self._asked:
                if not view.server.disabled:
                    nursery.start_soon(look, view)
        return found

    async def _collected(self, me: Actor, *, again: bool) -> tuple[Offered, dict[str, tuple[ServerTool, ...]]]:
        """The tools, and what each server has that was asked for its own.

        Args:
            again: they were collected before. What the node lists, and its server has no more, refuses to be called.
        """
        known = await _tools_of_all(me, self._asked, self._node)
        behind = _behind_three(self._wanted, known)
        collected = _Collected(self._taken)
        for choice in self._wanted.choices:
            name = choice.server.name
            view, tools = self._views[name], known.get(name, [])
            three = meta_tools(view, collected)
            own = {meta_name(verb, name): tool for verb, tool in zip(VERBS, three, strict=True)}
            others = {other_name(verb, name): tool for verb, tool in zip(VERBS, three, strict=True)}
            if isinstance(tools, Exception):
                collected.refuse([*choice.names, *(tool.name for tool in three), *others], tools)
                collected.refuse_all(name, tools)
                continue
            if choice.whole and name in behind:
                collected.add(three)
                collected.unlisted.update((other, others[other]) for other in others if other not in collected.unlisted)
            elif choice.whole:
                for tool in tools:
                    collected.add_direct(view, tool)
            for listed in choice.names:
                meta = own.get(listed) or others.get(listed)
                if meta is not None:
                    collected.add([meta])
                    continue
                try:
                    collected.add_direct(view, _listed(name, tools, listed))
                except GraphMistake as mistake:
                    if not again:
                        raise
                    collected.refuse([listed], mistake)
        lists = {name: tuple(tools) for name, tools in known.items() if not isinstance(tools, Exception)}
        offered = Offered(tools=tuple(collected.tools.values()), unlisted=collected.unlisted, absent=collected.absent)
        return offered, lists


class _Collected:
    """Tools by name; of two of one name the second gets another."""

    def __init__(self, taken: Container[str]) -> None:
        self.tools: dict[str, Tool] = {}
        self.unlisted: dict[str, Tool] = {}
        self.absent: dict[str, str] = {}
        self._taken = taken
        self._seen: set[tuple[str, str]] = set()

    def __contains__(self, name: object) -> bool:
        return name in self.tools or name in self._taken

    def add(self, tools: Iterable[Tool]) -> None:
        self.tools.update((tool.name, tool) for tool in tools)

    def add_direct(self, view: View, tool: ServerTool) -> None:
        key = view.server.name, tool.name
        if key in self._seen:
            return
        self._seen.add(key)
        name = offered_name(*key)
        if name in self:
            name = marked("__".join(key))
        self.add([direct_tool(view, tool, name)])

    def refuse(self, names: Iterable[str], why: Exception) -> None:
        """Names whose server can't be asked: not offered, and calls of them say why."""
        self.unlisted.update((name, _refusing(name, why)) for name in names)

    def refuse_all(self, server: str, why: Exception) -> None:
        """All tools of a server that can't be asked, whatever their names are."""
        self.absent[server] = shortened(str(why), _LONGEST_REASON)
        self.refuse([f"{legal(f'{server}__')}*"], why)


async def _tools_of_all(
    me: Actor, views: Iterable[View], node: str | None
) -> dict[str, list[ServerTool] | CallboardError]:
    """What each server has, or why it can't be asked; one warning says the latter."""
    found: dict[str, list[ServerTool] | CallboardError] = {}

    async def look(view: View) -> None:
        name = view.server.name
        try:
            if view.server.disabled:
                raise ConfigError(f"it is disabled in {view.server.where or 'mcp.json'}")
            found[name] = await view.tools(me)
        except CallboardError as error:
            found[name] = error
            if name not in view.talk.told and not isinstance(error, ActorError):  # told once to each agent
                view.talk.told.add(name)
                me.emit(Warned(code="mcp_server", message=f"no tools of MCP server '{name}': {error}", node=node))

    async with trio.open_nursery() as nursery:
        for view in views:
            nursery.start_soon(look, view)
    for error in found.values():
        if isinstance(error, ActorError):  # it is not the server: we are being stopped
            raise error
    return found


def _behind_three(wanted: Wanted, known: Mapping[str, list[ServerTool] | CallboardError]) -> set[str]:
    """The servers whose tools are shown as `meta`."""
    if wanted.mode != "auto":
        return {choice.server.name for choice in wanted.choices} if wanted.mode == "meta" else set()
    sizes = {name: _tokens(tools) for name, tools in known.items() if isinstance(tools, list)}
    whole = [choice.server.name for choice in wanted.choices if choice.whole and choice.server.name in sizes]
    behind: set[str] = set()
    for name in sorted(whole, key=lambda name: -sizes[name]):
        if sum(size for other, size in sizes.items() if other not in behind) <= wanted.budget:
            break
        behind.add(name)
    return behind


def _tokens(tools: Iterable[ServerTool]) -> int:
    """What the declarations of these tools take of a model's window, about."""
    return (
        sum(len(msgspec.json.encode((tool.name, tool.description, tool.input_schema))) for tool in tools) // _CHARACTERS
    )


def _has_to_be_asked(choice: Choice, mode: ToolMode) -> bool:
    """Whether the tools can't be offered without the server's list of them."""
    name = choice.server.name
    if choice.server.disabled or (choice.whole and mode != "meta"):
        return True
    of_all = {spell(verb, name) for verb in VERBS for spell in (meta_name, other_name)}
    return not of_all.issuperset(choice.names)


def _listed(server: str, tools: Iterable[ServerTool], listed: str) -> ServerTool:
    names = {offered_name(server, tool.name): tool for tool in tools}
    if listed in names:
        return names[listed]
    near = did_you_mean(listed, names) or f"it provides: {', '.join(names) or 'none'}"
    raise GraphMistake(f"llm node references unknown tool '{listed}' of MCP server '{server}'; {near}")


def _refusing(name: str, why: Exception) -> Tool:
    async def run(me: Actor, arguments: Arguments) -> Json:  # noqa: ARG001 - nothing is run
        raise ToolFailed(str(why)) from why

    return Tool(spec=ToolSpec(name=name, description=str(why)), run=run, origin="mcp")
