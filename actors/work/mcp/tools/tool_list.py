"""Tools of servers for one conversation, and the leases that it holds.

    meta      three tools per server (`meta`); no server starts before the first call
    direct    every tool individually (`direct`)
    auto      direct, while all declarations fit a budget of tokens; beyond it the servers with the longest
              declarations use meta, until the rest fits

Direct tools need the servers' lists: from the cache, otherwise from the servers, all requested concurrently. A server
that can't be reached loses only its own tools: a warning reports it, and the agent works without them.

Servers may change their tools during the conversation: `ConversationTools.renewed` checks that before each turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping

import msgspec
import trio

from .....protocol.errors import ActorError, CallboardError, ConfigError, GraphMistake, ToolFailed
from .....protocol.events import Warned
from .....protocol.mcp.config import ToolMode
from .....protocol.mcp.model import McpTool as ServerTool
from .....protocol.permissions import Permissions as Rules
from .....protocol.problems import did_you_mean
from .....supervisors import Actor
from ...tools.tool import Arguments, Json, Tool, ToolSpec, shortened
from .chosen import ChosenServer, WantedServers
from .direct import direct_tool
from .meta import meta_tools
from .names import VERBS, legal, marked, meta_name, offered_name, other_name
from .view import RunServices, ServersView, ServerView

_CHARACTERS = 4
"""Characters of JSON per token; precise enough for a budget."""

_LONGEST_REASON = 500
"""Characters of the reason for an unavailable server in a system prompt."""


class OfferedTools(msgspec.Struct, frozen=True, kw_only=True):
    """Tools that a conversation may call.

    Attributes:
        tools: tools in the request to the model.
        unlisted: further tools that it may call, by name.
        absent: reasons why servers are unavailable, by name.
    """

    tools: tuple[Tool, ...] = ()
    unlisted: dict[str, Tool] = {}
    absent: dict[str, str] = {}

    @property
    def prompt_lines(self) -> list[str]:
        """Lines about unavailable servers for the model's system prompt."""
        return [f"The tools of MCP server '{name}' are not available: {why}" for name, why in self.absent.items()]


@contextlib.contextmanager
def servers_at_work(
    me: Actor, context: RunServices, *, own: Rules, model: str, timeout: float | None = None
) -> Iterator[ServersView]:
    """Yield the servers of the agent whose actor is `me`. Their leases are returned at the end of the block.

    Args:
        own: `permissions` of its file.
        model: its default model.
        timeout: seconds for a call, in place of the servers' own limits.
    """
    assert context.mcp is not None
    with context.mcp().scope(run=me.stream.run, agent=me.path) as scope:
        yield ServersView(scope=scope, context=context, own=own, model=model, timeout=timeout)


class ConversationTools:
    """Tools of one conversation, updated from turn to turn.

    Args:
        taken: names of other tools.
        node: id of the node they are for.
    """

    def __init__(
        self, talk: ServersView, wanted: WantedServers, *, taken: Container[str] = (), node: str | None = None
    ) -> None:
        self._talk = talk
        self._wanted = wanted
        self._taken = taken
        self._node = node
        self._known: dict[str, tuple[ServerTool, ...]] = {}
        views = [(choice, ServerView(talk=talk, server=choice.server, lists=choice.lists)) for choice in wanted.choices]
        self._views = {choice.server.name: view for choice, view in views}
        self._asked = [view for choice, view in views if _has_to_be_asked(choice, wanted.mode)]

    async def first(self, me: Actor) -> OfferedTools:
        """Return the tools at the start.

        Raises:
            GraphMistake: the node lists a tool that its server does not have.
        """
        offered, self._known = await self._collected(me, again=False)
        return offered  # with possibly outdated lists: the next turn notices changes

    async def renewed(self, me: Actor) -> OfferedTools | None:
        """Return the tools after a change; None without a change."""
        known = await self._lists(me)
        if known == self._known:
            return None
        self._known = known
        return (await self._collected(me, again=True))[0]

    async def _lists(self, me: Actor) -> dict[str, tuple[ServerTool, ...]]:
        """Return the known tools of each server whose list is used."""
        found: dict[str, tuple[ServerTool, ...]] = {}

        async def fetch(view: ServerView) -> None:
            tools = await view.learned(me)
            if tools is not None:
                found[view.server.name] = tuple(tools)

        async with trio.open_nursery() as nursery:
            for view in self._asked:
                if not view.server.disabled:
                    nursery.start_soon(fetch, view)
        return found

    async def _collected(self, me: Actor, *, again: bool) -> tuple[OfferedTools, dict[str, tuple[ServerTool, ...]]]:
        """Return the tools, and the lists of the servers that were asked.

        Args:
            again: True after the first time. Then a listed tool that its server no longer has is replaced with one that
                fails.
        """
        known = await _tools_of_all(me, self._asked, self._node)
        behind = _behind_three(self._wanted, known)
        collected = _Collected(self._taken)
        for choice in self._wanted.choices:
            name = choice.server.name
            view, tools = self._views[name], known.get(name, [])
            # Also for direct tools: a node may list them by name, and an unavailable server refuses them.
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
        offered = OfferedTools(
            tools=tuple(collected.tools.values()), unlisted=collected.unlisted, absent=collected.absent
        )
        return offered, lists


class _Collected:
    """Tools by name; of two with the same name the second is renamed."""

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

    def add_direct(self, view: ServerView, tool: ServerTool) -> None:
        key = view.server.name, tool.name
        if key in self._seen:
            return
        self._seen.add(key)
        name = offered_name(*key)
        if name in self:
            name = marked("__".join(key))
        self.add([direct_tool(view, tool, name)])

    def refuse(self, names: Iterable[str], why: Exception) -> None:
        """Add names of an unavailable server: they are not offered, and calls of them fail with the reason."""
        self.unlisted.update((name, _refusing(name, why)) for name in names)

    def refuse_all(self, server: str, why: Exception) -> None:
        """Add all tools of an unavailable server, whatever their names."""
        self.absent[server] = shortened(str(why), _LONGEST_REASON)
        self.refuse([f"{legal(f'{server}__')}*"], why)


async def _tools_of_all(
    me: Actor, views: Iterable[ServerView], node: str | None
) -> dict[str, list[ServerTool] | CallboardError]:
    """Return each server's tools, or the reason why it is unavailable, which is reported by one warning."""
    found: dict[str, list[ServerTool] | CallboardError] = {}

    async def fetch(view: ServerView) -> None:
        name = view.server.name
        try:
            if view.server.disabled:
                raise ConfigError(f"it is disabled in {view.server.where or 'mcp.json'}")
            found[name] = await view.tools(me)
        except CallboardError as error:
            found[name] = error
            if name not in view.talk.told and not isinstance(error, ActorError):  # once per agent
                view.talk.told.add(name)
                me.emit(Warned(code="mcp_server", message=f"no tools of MCP server '{name}': {error}", node=node))

    async with trio.open_nursery() as nursery:
        for view in views:
            nursery.start_soon(fetch, view)
    for error in found.values():
        if isinstance(error, ActorError):  # this process is stopping; the server has not failed
            raise error
    return found


def _behind_three(wanted: WantedServers, known: Mapping[str, list[ServerTool] | CallboardError]) -> set[str]:
    """Return the servers whose tools are shown as `meta`."""
    if wanted.mode != "auto":
        return {choice.server.name for choice in wanted.choices} if wanted.mode == "meta" else set()
    sizes = {name: _tokens(tools) for name, tools in known.items() if isinstance(tools, list)}
    whole = [choice.server.name for choice in wanted.choices if choice.whole and choice.server.name in sizes]
    behind: set[str] = set()
    # The largest first, so that few servers lose their direct tools.
    for name in sorted(whole, key=lambda name: -sizes[name]):
        if sum(size for other, size in sizes.items() if other not in behind) <= wanted.budget:
            break
        behind.add(name)
    return behind


def _tokens(tools: Iterable[ServerTool]) -> int:
    """Estimate the tokens that the declarations of these tools take."""
    return (
        sum(len(msgspec.json.encode((tool.name, tool.description, tool.input_schema))) for tool in tools) // _CHARACTERS
    )


def _has_to_be_asked(choice: ChosenServer, mode: ToolMode) -> bool:
    """Return True if the tools can't be offered without the server's list."""
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
