"""Tools of servers for one conversation, and the leases that it holds.

    meta      three tools per server; no server starts before the first call
    direct    every tool individually (`direct`)
    auto      direct, while all declarations fit a budget of tokens; beyond it the servers with the longest
              declarations use meta, until the rest fits

Direct tools need the servers' lists: from the cache, otherwise from the servers, all requested concurrently. A server
that can't be reached loses only its own tools: a warning reports it, and the agent works without them.

Servers may change their tools during the conversation: `ConversationTools.renewed` checks that before each turn.

**Meta tools**: `mcp_search_<server>`, `mcp_describe_<server>` and `mcp_invoke_<server>`. Names, arguments and results
are Loki's. The server is asked for its tools at the first call of one of the three. Calls through `mcp_invoke_*` need
the same permissions as direct calls of the named tool.

The search ranks tools by BM25. A tool's document is its name, title and description, and `server:<name>`. Words are
split at case changes and underscores (`readFile`, `read_file`), and compared without case and without a plural `s`.
Tools that share no word with the query are not found. A query without any word finds all, in the server's order.

Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009).
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
import trio

from .....protocol.errors import ActorError, CallboardError, ConfigError, GraphMistake, ToolFailed
from .....protocol.events import Warned
from .....protocol.interrupted_calls import Repeats
from .....protocol.mcp.config import ToolMode
from .....protocol.mcp.model import McpTool as ServerTool
from .....protocol.permissions import Permissions as Rules
from .....protocol.problems import did_you_mean
from .....supervisors import Actor
from ...tools.tool import Arguments, Json, Run, Tool, ToolSpec, shortened
from .chosen import ChosenServer, WantedServers
from .direct import content_with_images, direct_tool, labels_of, with_linked, without_bytes
from .names import VERBS, legal, marked, meta_name, offered_name, other_name
from .view import UNREACHABLE, RunServices, ServersView, ServerView

_CHARACTERS = 4
"""Characters of JSON per token; precise enough for a budget."""

_LONGEST_REASON = 500
"""Characters of the reason for an unavailable server in a system prompt."""


class OfferedTools(msgspec.Struct, frozen=True, kw_only=True):
    """Tools that a conversation may call.

    Attributes:
        tools: tools in the request to the model.
        unlisted: further tools that it may call, by name. `NAME__*` stands for all tools of an unavailable server.
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
        """Return the tools for the first turn. Unavailable servers are in `absent`, and each causes a warning.

        Raises:
            GraphMistake: the node lists a tool that its server does not have.
        """
        offered, self._known = await self._collected(me, again=False)
        return offered  # with possibly outdated lists: the next turn notices changes

    async def renewed(self, me: Actor) -> OfferedTools | None:
        """Return the tools if a server's list has changed since the last call; None otherwise. Starts no server.

        A listed tool that its server no longer has remains in `unlisted`, and its calls fail with the reason.
        """
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
                raise ConfigError(f"the server is disabled in {view.server.where or 'mcp.json'}")
            found[name] = await view.tools(me)
        except CallboardError as error:
            found[name] = error
            if name not in view.talk.told and not isinstance(error, ActorError):  # once per agent
                view.talk.told.add(name)
                me.emit(
                    Warned(
                        code="mcp_server",
                        message=f"the tools of MCP server '{name}' are not available: {error}",
                        node=node,
                    )
                )

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


FOUND, MOST_FOUND = 8, 20
"""Tools that a search returns by default, and at most."""

_FAILED = {"search": "MCP search failed", "describe": "MCP describe failed", "invoke": "MCP tool invocation failed"}
_LONGEST_DESCRIPTION = 1_000

_K1, _B = 1.5, 0.75  # the usual values: saturation of repeated words, and normalisation by length
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEARCHED, _ALL = 10_000, 2_000_000
"""Characters of a description, or of a query, that are searched; and of all descriptions together."""

_NAME = {"type": "string", "description": "Name of the tool, as returned by the search."}
_ARGUMENTS = {"anyOf": [{"type": "object"}, {"type": "string"}], "default": {}, "description": "As described."}
_SEARCH_PARAMETERS = {
    "query": {"type": "string", "description": "What the tool should do, in a few words; empty for any tool."},
    "top_k": {"type": "integer", "default": FOUND, "description": f"How many tools at most, up to {MOST_FOUND}."},
}


def meta_tools(view: ServerView, taken: Container[str] = ()) -> list[Tool]:
    """Return the three tools of a server, in the order of `names.VERBS`.

    Args:
        taken: names of other tools; of two servers with equal legal names (`a.b`, `a_b`) the second one's are marked.
    """
    name = view.server.name
    about = f": {view.server.description.strip()}" if view.server.description.strip() else ""

    async def run_search(me: Actor, arguments: Arguments) -> Json:
        tools = await _tools(me, view, "search")
        most = min(max(int(arguments.get("top_k", FOUND)), 1), MOST_FOUND)
        return [
            {
                "name": tool.name,
                "server": name,
                "description": shortened(tool.description or tool.title or "", _LONGEST_DESCRIPTION),
            }
            for tool in search(arguments["query"], name, tools, most)
        ]

    async def run_describe(me: Actor, arguments: Arguments) -> Json:
        tool = await _named(me, view, arguments["tool"], "describe")
        properties = {"tool": {"type": "string"}, "arguments": tool.input_schema}
        schema: dict[str, Json] = {"type": "object", "properties": properties}
        return {"description": tool.description, **schema} if tool.description else schema

    async def resolve(me: Actor, arguments: Arguments) -> tuple[Tool, Arguments]:
        tool = await _named(me, view, arguments["tool"], "invoke")
        return _invoked(view, tool), _object(arguments.get("arguments"))

    async def run_invoke(me: Actor, arguments: Arguments) -> Json:
        tool, given = await resolve(me, arguments)
        return await tool.run(me, given)

    def one(verb: str, run: Run, description: str, **properties: Json) -> Tool:
        required = [key for key, schema in properties.items() if "default" not in schema]
        parameters = {"type": "object", "properties": properties, "required": required}
        own = meta_name(verb, name)
        own = marked(f"mcp_{verb}_{name}") if own in taken else own
        spec = ToolSpec(name=own, description=description, parameters=parameters)
        repeats: Repeats | None = None if verb == "invoke" else "read"
        return Tool(
            spec=spec,
            run=run,
            alias=other_name(verb, name),
            origin="mcp",
            repeats=repeats,
            labels=labels_of(view.server) | {"inside"},  # the search runs in this process
            server=(view.server.name,),
        )

    invoke = one("invoke", run_invoke, f"Call a tool of the MCP server '{name}'.", tool=_NAME, arguments=_ARGUMENTS)
    return [
        one("search", run_search, f"Search the tools of the MCP server '{name}'{about}.", **_SEARCH_PARAMETERS),
        one("describe", run_describe, f"Describe the arguments of a tool of the MCP server '{name}'.", tool=_NAME),
        msgspec.structs.replace(invoke, means=resolve, timeout=None),
    ]


def _invoked(view: ServerView, tool: ServerTool) -> Tool:
    """Return the tool as called by `mcp_invoke_*`: with equal permissions, but with its result unchanged."""
    direct = direct_tool(view, tool)

    async def run(me: Actor, arguments: Arguments) -> Json:
        try:
            result = await with_linked(me, view, await view.call(me, tool.name, arguments, direct.name))
            return content_with_images(without_bytes(result), result)
        except ToolFailed as error:
            raise ToolFailed(f"{_FAILED['invoke']}: {error}") from error

    return msgspec.structs.replace(direct, spec=ToolSpec(name=direct.name), run=run)


async def _tools(me: Actor, view: ServerView, verb: Literal["search", "describe", "invoke"]) -> list[ServerTool]:
    try:
        return await view.tools(me)
    except UNREACHABLE as error:
        raise ToolFailed(f"{_FAILED[verb]}: {error}") from error


async def _named(me: Actor, view: ServerView, name: str, verb: Literal["describe", "invoke"]) -> ServerTool:
    server = view.server.name
    tools = await _tools(me, view, verb)
    for tool in tools:
        if name in (tool.name, offered_name(server, tool.name)):
            return tool
    near = did_you_mean(name[:100], [tool.name for tool in tools])
    text = f"{_FAILED[verb]}: {shortened(name, 100)} not found in {server} MCP server catalog"
    raise ToolFailed(f"{text}; {near}" if near else text)


def _object(value: Json) -> Arguments:
    # The declared parameters allow the object as a string of JSON too, which some models send.
    if isinstance(value, str) and value.strip():
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise ToolFailed(f"{_FAILED['invoke']}: 'arguments' is not valid JSON ({error})") from None
    if not value:
        return {}
    if not isinstance(value, dict):
        raise ToolFailed(f"{_FAILED['invoke']}: 'arguments' must be a JSON object")
    return value


def search(query: str, server: str, tools: Sequence[ServerTool], most: int) -> list[ServerTool]:
    """Return the best matching tools, the best first, at most `most` of them.

    Tools that share no word with the query are left out. A query without words returns the first tools of the list.
    """
    wanted = set(words(query))
    if not wanted:
        return list(tools[:most])
    # The search runs in the event loop, so its total work is limited.
    longest = min(_SEARCHED, _ALL // max(1, len(tools)))
    texts = (f"server:{server} {tool.name} {tool.title or ''} {tool.description or ''}" for tool in tools)
    documents = [Counter(words(text[:longest])) for text in texts]
    scores = _scores(wanted, documents)
    found = sorted((i for i, score in enumerate(scores) if score > 0), key=lambda i: -scores[i])
    return [tools[i] for i in found[:most]]


def words(text: str) -> list[str]:
    """Return the words of a text as the search compares them: split at case changes, lower case, without plural `s`."""
    parts = _WORD.findall(_HUMP.sub(" ", text[:_SEARCHED]))
    return [_singular(part.casefold()) for part in parts]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _scores(wanted: set[str], documents: list[Counter[str]]) -> list[float]:
    count = len(documents)
    lengths = [document.total() for document in documents]
    mean = sum(lengths) / count if count else 1.0
    scores = [0.0] * count
    for word in wanted:
        holders = [i for i, document in enumerate(documents) if word in document]
        # With `1 +` inside the logarithm, a word that most tools have does not count against them.
        rarity = math.log(1 + (count - len(holders) + 0.5) / (len(holders) + 0.5))
        for i in holders:
            often = documents[i][word]
            scores[i] += rarity * often * (_K1 + 1) / (often + _K1 * (1 - _B + _B * lengths[i] / mean))
    return scores
