"""Offer of a source: its selected items with their contents and capabilities.

Capabilities are the effects of an item after installation, read from its files without running any. The preview shows
them for each item before anything is installed. They are programs that it starts, with or without asking the user,
servers that it reaches, and built-in names that it hides. All texts are untrusted: one line each, of limited length.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import trio

from ....protocol.agent import draft_agent
from ....protocol.environment import REFERENCE, SECRET
from ....protocol.errors import CallboardError, InvalidFile, NotKept
from ....protocol.graph import AgentNode, Graph, LlmNode, RagNode, ScriptNode, read_graph
from ....protocol.macro import read_macro
from ....protocol.mcp.config import read_mcp
from ....protocol.mcp.editing import entries_of
from ....protocol.problems import Problem, errors_in
from ....protocol.role import read_role
from ....protocol.tree import plain
from ....protocol.version import VERSION
from ....protocol.yaml_tree import parse_mapping
from ...io import temporary
from ...io.directories import user_folder
from ...io.named_files import is_name
from ..library import AGENTS, MACROS, ROLES, SENDING
from ..tools.builtin.table import SPECS
from ..tools.registry import AICHAT_FILE, ENDINGS, WITH_ACCOUNTS, bare_name, read_tool_file, with_listed
from .layout import LARGEST_FILE, Item, Kind, SourceLayout, chosen, lay_out, refuse
from .source import BUILT_IN, KIB, BundleSource, SourceTree, fetch, list_folder, one_line
from .transaction import NewFile

if TYPE_CHECKING:
    from ....protocol.agent import Agent
    from ....protocol.graph import Variable
    from ....supervisors import Actor
    from ..tools.declare.declaration import ToolFile


Choose: TypeAlias = Callable[[Sequence[Item]], list[Item]]

LIBRARY = AGENTS.parent
"""Directory with the items that come with Callboard, in the layout of a bundle."""


class BundleCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """Installable contents of a source.

    Attributes:
        commit: commit of the repository, or version of Callboard.
        items: selected items that can be used.
        files: new files by path in the configuration directory.
        servers: entries for mcp.json.
        abilities: capabilities by item label.
        left_out: items and files that are not installed, with the reason.
        withheld: items that are not installed; installed versions of them stay unchanged.
    """

    source: BundleSource
    commit: str
    items: tuple[Item, ...]
    files: dict[str, NewFile]
    servers: dict[str, Any]
    abilities: dict[str, Capabilities]
    left_out: tuple[str, ...] = ()
    withheld: tuple[Item, ...] = ()

    def withholds(self, path: str) -> bool:
        """Return whether a file of the configuration directory belongs to a withheld item."""
        return any(
            path.startswith(f"agents/{item.name}/") if item.kind == "agents" else path in item.files
            for item in self.withheld
        )

    def withholds_server(self, name: str) -> bool:
        """Return whether an MCP server of the bundle is withheld, so that its entry is not installed."""
        return any(item.kind == "mcp" and item.name == name for item in self.withheld)

    def without(self, labels: Mapping[str, str]) -> BundleCandidate:
        """Return the offer without these items; the values are the reasons."""
        if not labels:
            return self
        items = tuple(item for item in self.items if item.label not in labels)
        paths = {path for item in items for path in item.files}
        named = {item.name for item in items if item.kind == "mcp"}
        return msgspec.structs.replace(
            self,
            items=items,
            files={path: new for path, new in self.files.items() if path in paths},
            servers={name: entry for name, entry in self.servers.items() if name in named},
            left_out=(*self.left_out, *(f"{label}: {why}" for label, why in labels.items())),
            withheld=(*self.withheld, *(item for item in self.items if item.label in labels)),
        )


async def read_candidate(
    me: Actor,
    source: BundleSource,
    environ: Mapping[str, str],
    *,
    base: Path,
    path: str = "",
    filters: Sequence[str] = (),
    strict: bool = True,
) -> BundleCandidate:
    """Fetch a source and read its offer. Nothing of it is run.

    Args:
        base: the configuration directory, whose own tools replace built-in ones.
        path: directory in the source with the bundle; "" to search for it.
        filters, strict: see `layout.chosen`.

    Raises:
        CallboardError: the source can't be fetched, has nothing to install, or is refused.
    """
    with _scratch() as scratch:
        if source.folder is not None:
            tree = await list_folder(source.folder)
        else:
            into = scratch / "git"
            into.mkdir()
            tree = await fetch(me, source, into, environ)
        commit = VERSION if source.url == BUILT_IN else tree.commit
        choose = partial(chosen, filters=filters, strict=strict)
        offer = await _read(
            source, tree.below(path.strip("/")), commit, choose, scratch / "shown", own_tools(base, environ)
        )
    if strict and not offer.items:
        raise InvalidFile("\n  ".join(["nothing in the bundle can be installed:", *offer.left_out[:20]]))
    return offer


@contextmanager
def _scratch() -> Iterator[Path]:
    try:
        with temporary.directory("bundle-") as directory:
            yield directory
    except OSError as error:
        where = os.environ.get("TMPDIR") or "the directory for temporary files"
        raise NotKept(
            f"{where} can't be written to: {error.strerror or error}; set TMPDIR to another directory"
        ) from error


async def _read(
    source: BundleSource, tree: SourceTree, commit: str, choose: Choose, scratch: Path, own: set[str]
) -> BundleCandidate:
    layout = lay_out(tree)
    below = tree.below(layout.top)
    servers = await _servers(below, layout)
    everything = [*layout.items, *(Item(kind="mcp", name=name) for name in servers)]
    items = choose(everything)
    # Refused by names, sizes and kinds, before any content is read.
    refuse(items)
    servers = {item.name: servers[item.name] for item in items if item.kind == "mcp"}
    places = {target: entry for item in items for target, entry in item.files.items()}
    contents = await below.read(list(places.values()))
    files = {target: NewFile(contents[entry.path], entry.executable) for target, entry in places.items()}
    abilities = await trio.to_thread.run_sync(_capabilities, items, files, servers, scratch, own)
    offer = BundleCandidate(
        source=source,
        commit=commit,
        items=tuple(items),
        files=files,
        servers=servers,
        abilities=abilities,
        left_out=layout.left_out,
    )
    return offer.without({label: found.wrong for label, found in abilities.items() if found.wrong})


async def _servers(tree: SourceTree, layout: SourceLayout) -> dict[str, Any]:
    if layout.mcp is None:
        return {}
    file = layout.mcp
    if file.kind != "file" or file.size > LARGEST_FILE:
        raise InvalidFile(f"{file.path} is not a regular file of at most {LARGEST_FILE // KIB} KiB")
    data = (await tree.read([file]))[file.path]
    try:
        servers = entries_of(data.decode(), file.path)
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{file.path} is not UTF-8 text (byte {error.start})") from error
    odd = [name for name in servers if not is_name(name)]
    if odd:
        raise InvalidFile(
            f"{file.path} has an MCP server with the name {odd[0][:100]!r}; a name may have letters, digits and . _ -"
        )
    return servers


def _capabilities(
    items: Sequence[Item], files: Mapping[str, NewFile], servers: Mapping[str, Any], scratch: Path, own: set[str]
) -> dict[str, Capabilities]:
    """Return the capabilities of all items.

    The files are written to `scratch` meanwhile, since the readers need paths.
    """
    for target, new in files.items():
        place = scratch / target
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(new.data)
    # A tool file of the user or of this bundle replaces a built-in tool of the same name, and runs without asking.
    tools = own | {item.name for item in items if item.kind == "tools"}
    return {
        item.label: capabilities_of_server(item.name, servers[item.name])
        if item.kind == "mcp"
        else capabilities_of(item, scratch, tools)
        for item in items
    }


def own_tools(base: Path, environ: Mapping[str, str] = os.environ) -> set[str]:
    """Return the names of the user's global tools that are files."""
    folder = user_folder("functions", base, environ) / "tools"
    return {path.stem for path in folder.glob("*") if path.suffix in ENDINGS}


_LONGEST = 240
"""Most characters of a description. A command line is shown completely, or the item is refused (`_WHOLE`)."""

_WHOLE = 4_000
_MANY = 40
_ENVIRONMENT = re.compile(
    r"(?:environ(?:\.get)?[\[(]\s*|getenv\(\s*|process\.env\[\s*)[\"']([A-Z][A-Z0-9_]{2,})[\"']|process\.env\.([A-Z][A-Z0-9_]{2,})"
)
_OWN = ("LLM_", "CALLBOARD_", "ARGC_")


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Capabilities of one item.

    Attributes:
        about: its description of itself.
        can: its capabilities, one line each.
        wrong: reason why it can't be used; "" if it can.
    """

    about: str = ""
    can: tuple[str, ...] = ()
    wrong: str = ""


def capabilities_of(item: Item, home: Path, files: Container[str] = ()) -> Capabilities:
    """Return the capabilities of an agent, a role, a macro, a tool or a workflow.

    Errors of its files are not raised: they are in `wrong`.

    Args:
        home: directory with its files, in the layout of a configuration directory.
        files: names of global tools that are files, including ones that replace built-in tools: they run without
            asking.
    """
    try:
        found = _of(item, home, files)
    except (OSError, UnicodeDecodeError) as error:
        return Capabilities(wrong=f"the item can't be read: {error}")
    except CallboardError as error:
        return Capabilities(wrong=line(str(error)))
    return _printable(found)


def _printable(found: Capabilities) -> Capabilities:
    """Turn the texts into single lines without control characters, which a terminal could interpret."""
    can = tuple(map(one_line, found.can))
    # A truncated command line could hide its dangerous end, so the item is refused instead.
    if any(len(text) > _WHOLE for text in can):
        return Capabilities(
            wrong=f"the command that the item runs has more than {_WHOLE} characters, too many to review"
        )
    return msgspec.structs.replace(found, about=line(found.about), can=can)


def _of(item: Item, home: Path, files: Container[str]) -> Capabilities:
    if item.name in (".shared", "utils") and item.kind in ("agents", "tools"):
        return Capabilities(about=f"files shared by its {item.kind}: {_listed(sorted(item.files))}")
    if item.kind == "agents":
        return _of_agent(item, home / "agents" / item.name, files)
    file = home / next(iter(item.files))
    if item.kind == "tools":
        return _of_tool(item, file)
    text = file.read_text("utf-8")
    if item.kind == "roles":
        return _of_role(item, text, file, files)
    if item.kind == "macros":
        return _of_macro(item, text, file)
    return _of_workflow(text, file)


# --- agents


def _of_agent(item: Item, directory: Path, tool_files: Container[str]) -> Capabilities:
    files = [name for name in ("config.yaml", "graph.yaml") if (directory / name).is_file()]
    files = files or [name for name in (AICHAT_FILE,) if (directory / name).is_file()]
    if len(files) != 1:
        why = "both config.yaml and graph.yaml" if files else "neither config.yaml nor graph.yaml"
        return Capabilities(wrong=f"agents/{item.name} has {why}")
    text = (directory / files[0]).read_text("utf-8")
    if files[0] == "graph.yaml":
        graph, problems = read_graph(text, files[0])
        if graph is None:
            return _broken(problems)
        can = [*_own_tools(directory), *_graph_can(graph, tool_files)]
        return Capabilities(about=graph.description, can=(*can, *_hides("agents", item.name)))
    agent, problems = draft_agent(text, files[0])
    if agent is None or errors_in(problems):
        return _broken(problems)
    if files[0] == AICHAT_FILE:
        agent = with_listed(agent, directory)
    can = [*_own_tools(directory, agent), *_agent_can(agent, tool_files)]
    return Capabilities(about=agent.description, can=(*can, *_hides("agents", item.name)))


def _own_tools(directory: Path, agent: Agent | None = None) -> Iterator[str]:
    for path in (directory / f"tools{ending}" for ending in ENDINGS):
        if not path.is_file():
            continue
        file = read_tool_file(path, agent=True, wordless=True)
        names = [declaration.name for declaration in file.declarations]
        if names:
            yield f"runs its own programs without asking: {path.name} ({_listed(names)})"
        if file.instructions is not None and agent is not None and agent.dynamic_instructions:
            yield f"runs _instructions of {path.name} without asking, each time the agent starts"
        yield from _wants(file, path)


def _agent_can(agent: Agent, files: Container[str]) -> Iterator[str]:
    yield from _secrets(agent.variables)
    yield from _tools_line(agent.global_tools, files)
    if agent.mcp_servers:
        yield f"uses MCP servers: {_listed(agent.mcp_servers)}"
    if agent.can_spawn_agents:
        which = agent.spawnable_agents
        yield f"starts other agents: {'any' if which is None else _listed(which)}"
    if agent.documents:
        yield f"reads documents: {_listed(agent.documents)}"


def _graph_can(graph: Graph, files: Container[str]) -> Iterator[str]:
    yield from _secrets(graph.variables)
    nodes = graph.nodes.values()
    scripts = sorted({node.script for node in nodes if isinstance(node, ScriptNode)})
    if scripts:
        yield f"runs its own scripts without asking: {_listed(scripts)}"
    listed = [tool for node in nodes if isinstance(node, LlmNode) for tool in node.tools]
    yield from _tools_line([*graph.global_tools, *(tool for tool in listed if not tool.startswith("mcp:"))], files)
    servers = [*graph.mcp_servers, *(tool[4:] for tool in listed if tool.startswith("mcp:"))]
    if servers:
        yield f"uses MCP servers: {_listed(servers)}"
    agents = [node.agent for node in nodes if isinstance(node, AgentNode)]
    if agents:
        yield f"starts other agents: {_listed(agents)}"
    documents = [text for node in nodes if isinstance(node, RagNode) for text in node.documents]
    if documents:
        yield f"reads documents: {_listed(documents)}"


def _secrets(variables: Iterable[Variable]) -> Iterator[str]:
    names = [name for each in variables for name in SECRET.findall(each.default or "")]
    if names:
        yield f"passes secrets from the vault or the environment to its tools: {_listed(sorted(names))}"


def _tools_line(names: Iterable[str], files: Container[str]) -> Iterator[str]:
    """Yield the effects of tools by name. Effects of tool files, the user's or the bundle's, are unknown."""
    named = list(dict.fromkeys(bare_name(name) for name in names))
    if "all" in named:
        yield "uses every global tool; tools from tool files run without asking"
    unasked = [name for name in named if name in files and name not in SENDING]
    if unasked:
        yield f"runs tools from tool files without asking: {_listed(unasked)}"
    bare = [name for name in named if name != "all" and name not in unasked]
    running = [name for name in bare if name in SPECS and SPECS[name].effect == "execute"]
    writing = [name for name in bare if (name in SPECS and SPECS[name].effect == "write") or name == "fs"]
    sending = [name for name in bare if name in SENDING]
    others = [name for name in bare if name not in (*running, *writing, *sending)]
    if running:
        yield f"may run any command with {_listed(running)}, after asking"
    if writing:
        yield f"may change files with {_listed(writing)}, after asking"
    if sending:
        yield f"may send data to others with {_listed(sending)}, after asking"
    if others:
        yield f"uses tools: {_listed(others)}"


# --- tools, roles, macros, workflows, servers


def _of_tool(item: Item, file: Path) -> Capabilities:
    if len(item.files) > 1:  # tools are found by name: another file than the described one could run
        return Capabilities(
            wrong=(
                f"the bundle has several files with this tool's name ({_listed(sorted(item.files))}), and only "
                "one of them would run"
            )
        )
    read = read_tool_file(file, agent=False)
    if errors_in(read.problems) or not read.declarations:
        return _broken(read.problems) if read.problems else Capabilities(wrong=f"{file.name} declares no tool")
    (declaration,) = read.declarations
    takes = ", ".join(declaration.parameters["properties"])
    how = "after asking" if item.name in SENDING else "without asking"
    can = [f"runs {declaration.language} {how}: {declaration.name}({takes})"]
    if declaration.requires:
        can.append(f"needs the programs {_listed(declaration.requires)}")
    return Capabilities(about=declaration.description, can=(*can, *_wants(read, file), *_hides("tools", item.name)))


def _of_role(item: Item, text: str, file: Path, files: Container[str]) -> Capabilities:
    role, problems = read_role(text, file.name, item.name)
    if role is None:
        return _broken(problems)
    tools = role.enabled_tools or role.use_tools or ()
    servers = role.enabled_mcp_servers or ()
    can = [*_tools_line(_names(tools), files)]
    if servers:
        can.append(f"uses MCP servers: {_listed(_names(servers))}")
    return Capabilities(about=role.description or role.text, can=(*can, *_hides("roles", item.name)))


def _of_macro(item: Item, text: str, file: Path) -> Capabilities:
    macro, problems = read_macro(text, file.name, item.name)
    if macro is None:
        return _broken(problems)
    steps = [f"plays: {step}" for step in macro.steps]
    return Capabilities(about=macro.description, can=(*steps, *_hides("macros", item.name)))


def _of_workflow(text: str, file: Path) -> Capabilities:
    root, problems = parse_mapping(text, file.name)
    if root is None:
        return _broken(problems)
    whole: dict[str, Any] = plain(root)
    graph = whole.get("graph")
    nodes = graph.get("nodes") if isinstance(graph, dict) else whole.get("nodes")
    if isinstance(nodes, dict):
        nodes = list(nodes.values())
    if not isinstance(nodes, list):
        return Capabilities(wrong=f"{file.name} has no nodes")
    kinds = _kinds_of_nodes(whole)
    can = [f"has nodes: {_listed(sorted(kinds))}"]
    if {"python", "script"} & kinds or "tooling" in text:
        can.append("runs its own programs, or tools, without asking")
    about = graph.get("description", "") if isinstance(graph, dict) else whole.get("description", "")
    return Capabilities(about=str(about or ""), can=tuple(can))


def _kinds_of_nodes(whole: dict[str, Any]) -> set[str]:
    """Return the types of all nodes, including nodes of nested workflows (`subgraph`)."""
    kinds: set[str] = set()
    seen: set[int] = set()  # an anchor may be referenced in many places, or contain itself
    todo: list[Any] = [whole]
    while todo:
        value = todo.pop()
        if not isinstance(value, dict | list) or id(value) in seen:
            continue
        seen.add(id(value))
        todo += value.values() if isinstance(value, dict) else value
        nodes = value.get("nodes") if isinstance(value, dict) else None
        for node in nodes.values() if isinstance(nodes, dict) else nodes if isinstance(nodes, list) else ():
            if isinstance(node, dict) and node.get("type"):
                kinds.add(str(node["type"]))
    return kinds


def capabilities_of_server(name: str, entry: Any) -> Capabilities:
    """Return the capabilities of an entry of mcp.json. Its values are shown as written, with their references."""
    text = msgspec.json.encode({"mcpServers": {name: entry}}).decode()
    config = read_mcp(text, "mcp.json")
    if name not in config.servers:
        why = config.broken.get(name)
        return Capabilities(wrong=line(why.message if why else "the entry of this MCP server is not valid"))
    server = config.servers[name]
    if server.type == "stdio":
        can = [f"starts: {' '.join([server.command, *server.args])}"]
        when = (
            " together with every Callboard program that uses MCP servers, whether this one is used or not"
            if server.warm
            else ""
        )
        can += [f"is started{when}"] if when else []
    else:
        can = [f"receives the calls of agents at {server.url}"]
    if server.trust == "full":
        can.append("runs its tools without asking, including destructive ones (trust: full)")
    if server.sampling == "on":
        can.append("may use your model without asking (sampling: on)")
    names = sorted({found["name"] or found["secret"] for found in REFERENCE.finditer(text)})
    if names:
        can.append(f"receives from the environment or the vault: {_listed(names)}")
    # Completely, like the command: GIT_SSH_COMMAND, NODE_OPTIONS and similar variables name programs.
    given = [f"{variable}={value}" for variable, value in server.env.items()]
    if given:
        can.append(f"sets in its environment: {' '.join(given)}")
    return _printable(Capabilities(about=server.description, can=tuple(can)))


# --- texts


def _hides(kind: Kind, name: str) -> Iterator[str]:
    """Yield a line if the item hides a built-in one with the same name."""
    ours: Mapping[Kind, bool] = {
        "agents": (AGENTS / name).is_dir(),
        "roles": (ROLES / f"{name}.md").is_file(),
        "macros": (MACROS / f"{name}.yaml").is_file(),
        "tools": name in SPECS or name in WITH_ACCOUNTS,
    }
    if ours.get(kind):
        yield f"replaces the built-in {kind[:-1]} {name} wherever it is used"


def _wants(file: ToolFile, path: Path) -> Iterator[str]:
    declared = {variable.name for each in file.declarations for variable in each.environment}
    found = {one or other for one, other in _ENVIRONMENT.findall(path.read_text("utf-8", errors="replace"))}
    names = sorted(name for name in declared | found if not name.startswith(_OWN))
    if names:
        yield f"reads from the environment: {_listed(names)}"


def _broken(problems: Iterable[Problem]) -> Capabilities:
    errors = errors_in(problems)
    more = f" (and {len(errors) - 1} more)" if errors[1:] else ""
    return Capabilities(wrong=line(f"{errors[0].message}{more}" if errors else "the file can't be read"))


def _names(given: Any) -> list[str]:
    parts = given.split(",") if isinstance(given, str) else [str(each) for each in given]
    return [part.strip() for part in parts if part.strip()]


def _listed(names: Iterable[str]) -> str:
    every = list(dict.fromkeys(names))
    shown = ", ".join(every[:_MANY])
    return shown + (f" and {len(every) - _MANY} more" if every[_MANY:] else "")


def line(text: str) -> str:
    """Return an untrusted text as one line of limited length, without control characters."""
    text = one_line(text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
