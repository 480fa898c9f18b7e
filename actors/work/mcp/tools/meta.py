"""Three tools for a server with any number of tools: `mcp_search_<server>`, `mcp_describe_<server>` and
`mcp_invoke_<server>`.

Names, arguments and results are Loki's. The server is asked for its tools at the first call of one of the three. Calls
through `mcp_invoke_*` need the same permissions as direct calls of the named tool (`direct`).

The search ranks tools by BM25. A tool's document is its name, title and description, and `server:<name>`. Words are
split at case changes and underscores (`readFile`, `read_file`), and compared without case and without a plural `s`.
Tools that share no word with the query are not found. A query without any word finds all, in the server's order.

Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Sequence
from typing import Literal

import msgspec

from .....protocol.errors import ToolFailed
from .....protocol.mcp.model import McpTool as ServerTool
from .....protocol.problems import did_you_mean
from .....protocol.repeats import Repeats
from .....supervisors import Actor
from ...tools.tool import Arguments, Json, Run, Tool, ToolSpec, shortened
from .direct import direct_tool, labels_of, without_bytes
from .media import content_with_images, with_linked
from .names import marked, meta_name, offered_name, other_name
from .view import UNREACHABLE, ServerView

FOUND, MOST_FOUND = 8, 20
"""Tools that a search returns by default, and at most."""

_FAILED = {"search": "MCP search failed", "describe": "MCP describe failed", "invoke": "MCP tool invocation failed"}
_LONGEST_DESCRIPTION = 1_000

_K1, _B = 1.5, 0.75  # the usual values: saturation of repeated words, and normalisation by length
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEARCHED, _ALL = 10_000, 2_000_000
"""Characters of a description, or of a query, that are searched; and of all descriptions together."""

_TOOL = {"type": "string", "description": "Name of the tool, as the search tells it."}
_GIVEN = {"anyOf": [{"type": "object"}, {"type": "string"}], "default": {}, "description": "As described."}
_SEARCH = {
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

    invoke = one("invoke", run_invoke, f"Call a tool of the MCP server '{name}'.", tool=_TOOL, arguments=_GIVEN)
    return [
        one("search", run_search, f"Search the tools of the MCP server '{name}'{about}.", **_SEARCH),
        one("describe", run_describe, f"Tell which arguments a tool of the MCP server '{name}' takes.", tool=_TOOL),
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
            raise ToolFailed(f"{_FAILED['invoke']}: 'arguments' is no JSON object ({error})") from None
    if not value:
        return {}
    if not isinstance(value, dict):
        raise ToolFailed(f"{_FAILED['invoke']}: 'arguments' has to be a JSON object")
    return value


def search(query: str, server: str, tools: Sequence[ServerTool], most: int) -> list[ServerTool]:
    """Return the best matching tools, the best first, at most `most` of them."""
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
    """Return the normalized words of a text."""
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
