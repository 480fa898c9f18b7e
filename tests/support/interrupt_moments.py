"""The moments at which a chat is interrupted: kinds and the points in them, each with a way to get there.

`MOMENTS` are all of them for each wire format of which they make sense; `SOME` a tenth, one of each kind at least.
"""

from __future__ import annotations

import json
import random
import shlex
import sys
import threading
from collections.abc import Awaitable, Callable
from unittest import mock

import trio

from callboard.actors.work.tools.changes.store import ChangeStore
from callboard.protocol.control.caller import LOCAL
from support.fake_models import Reply
from support.interrupted_chat import ANYTHING, Moment, Scene
from support.mcp_processes import SERVERS
from support.waiting import PATIENCE

Reach = Callable[[Scene], Awaitable[None]]

WORDS = "let me see what there is"
INTERRUPTED = "interrupted: this call did not come to its end"
FREE = {"permissions": {"execute_command": "allow", "fs_write": "allow", "napping": "allow", "deaf": "allow"}}
TOOLS = {**FREE, "enabled_tools": "execute_command,fs_write"}
LEAD = "name: lead\ninstructions: You lead.\n"
CHILD = "name: child\ninstructions: You work.\n"
DEAF = "trap '' TERM; touch DIRECTORY/up; while :; do sleep 0.2; done"
NAP = "touch DIRECTORY/up; sleep 60"
FAMILY = {
    "agents/lead/config.yaml": LEAD + "can_spawn_agents: true\nglobal_tools: [execute_command]\n",
    "agents/child/config.yaml": CHILD + "can_spawn_agents: true\nglobal_tools: [execute_command]\n",
    "agents/grandchild/config.yaml": "name: grandchild\ninstructions: You help.\nglobal_tools: [execute_command]\n",
}


def call(name: str, /, **arguments: object) -> tuple[str, object]:
    return name, arguments


# --- streaming --------------------------------------------------------------------------------------------


def says(reply: Callable[[], Reply], *lines: str) -> Reach:
    """The model's reply stalls, or is held back."""

    async def reach(scene: Scene) -> None:
        for line in lines:
            await scene.line(line)
        said = reply()
        scene.on("tell me", said)
        await scene.begin()
        await (scene.stalled(said) if said.stall is not None else scene.held(said))

    return reach


def _streaming() -> list[Moment]:
    def at(point: str, reply: Callable[[], Reply], *keeps: str, lines: tuple[str, ...] = ()) -> Moment:
        return Moment("streaming", point, says(reply, *lines), keeps, settings=TOOLS)

    two = [call("execute_command", command="echo one"), call("execute_command", command="sleep 60")]
    return [
        at("before headers", lambda: Reply(hold=trio.Event())),
        at("before the first byte", lambda: Reply(WORDS, stall=0)),
        at("thinking", lambda: Reply(WORDS, reasoning="it may be that they mean this", stall=b"that ")),
        at("mid-word", lambda: Reply(WORDS, stall=b"e see"), "tell me", "let me see"),
        at("after the last byte, before the end", lambda: Reply(WORDS, stall=b"e is"), "tell me", WORDS),
        at("before the last event", lambda: Reply(WORDS, stall=-1), "tell me", WORDS),
        at("in a call's arguments", lambda: Reply(WORDS, calls=two[1:], stall=b"ommand"), "tell me", WORDS),
        at("in the arguments of a second call", lambda: Reply(calls=two, stall=b"sleep", piece=30)),
        at("in the temporary session", lambda: Reply(WORDS, stall=b"e see"), "let me see", lines=(".session",)),
        at("in a session that is kept", lambda: Reply(WORDS, stall=b"e see"), "let me see", lines=(".session kept",)),
        at("before a whole answer", lambda: Reply(hold=trio.Event()), lines=(".set stream false",)),
    ]


# --- tools ------------------------------------------------------------------------------------------------


def works(*calls: tuple[str, object], up: str = "up") -> Reach:
    """Calls of tools; the last says with a file that it has begun."""

    async def reach(scene: Scene) -> None:
        told = [(name, _placed(scene, arguments)) for name, arguments in calls]
        scene.on("tell me", Reply(WORDS, calls=told))
        await scene.begin()
        await scene.until(scene.file(up).exists)

    return reach


def _placed(scene: Scene, arguments: object) -> object:
    assert isinstance(arguments, dict)
    return {key: value.replace("DIRECTORY", str(scene.directory)) for key, value in arguments.items()}


async def second_round(scene: Scene) -> None:
    """A call has its result, and the next is at work."""
    first = call("execute_command", command="echo one")
    second = call("execute_command", command=NAP.replace("DIRECTORY", str(scene.directory)))
    scene.on("tell me", Reply(calls=[first]), Reply(calls=[second]))
    await scene.begin()
    await scene.until(scene.file("up").exists)


async def between_rounds(scene: Scene) -> None:
    """A call has its result, and the next reply stalls."""
    next = Reply("and so it is", stall=b"o it")
    scene.on("tell me", Reply(calls=[call("execute_command", command="echo one")]), next)
    await scene.begin()
    await scene.stalled(next)


async def before_image(scene: Scene) -> None:
    """What was in a file is being kept, before it is written; that is done in a thread, to its end."""
    path = scene.file("notes.txt")
    path.write_text("as it was")
    begun, keep = threading.Event(), ChangeStore.keep

    def slowly(store: ChangeStore, data: bytes) -> None:
        begun.set()
        threading.Event().wait(0.1)
        keep(store, data)

    with mock.patch.object(ChangeStore, "keep", slowly):
        scene.on("tell me", Reply(WORDS, calls=[call("fs_write", path=str(path), contents="as it is")]))
        await scene.begin()
        await scene.until(begun.is_set)


def _tools() -> list[Moment]:
    def at(point: str, reach: Reach, *keeps: str, **files: str) -> Moment:
        named = {f"functions/tools/{name.replace('_', '.')}": text for name, text in files.items()}
        tools = {**TOOLS, "enabled_tools": "execute_command,fs_write,napping,deaf"} if files else TOOLS
        return Moment("tool", point, reach, ("tell me", *keeps), files=named, settings=tools)

    doc = '    """Do it.\n\n    Args:\n        how: How.\n    """\n'
    begins = f"import pathlib, signal, time\n\ndef run(how: str) -> str:\n{doc}"
    ends = "    pathlib.Path(how).touch()\n    time.sleep(60)\n"
    napping, deaf = begins + ends, f"{begins}    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{ends}"
    nap = call("execute_command", command=NAP)
    return [
        at("a process", works(nap), INTERRUPTED),
        at("a process that ignores SIGTERM", works(call("execute_command", command=DEAF)), INTERRUPTED),
        at("a process in the background", works(call("execute_command", command=f"setsid sleep 60 & {NAP}"))),
        at("the second of two", works(call("execute_command", command="echo one"), nap), INTERRUPTED),
        at("a tool in Python", works(call("napping", how="DIRECTORY/up")), INTERRUPTED, napping_py=napping),
        at("a tool in Python that ignores SIGTERM", works(call("deaf", how="DIRECTORY/up")), INTERRUPTED, deaf_py=deaf),
        at("the second round", second_round, INTERRUPTED),
        at("the reply after a result", between_rounds, "and so"),
        at("a before-image is written", before_image, "fs_write"),
    ]


async def shell_line(scene: Scene) -> None:
    """A line of the shell of the person's own, behind an answer."""
    assert (await scene.line("tell me"))["status"] == "done"
    await scene.begin(f"!{DEAF.replace('DIRECTORY', str(scene.directory))}")
    await scene.until(scene.file("up").exists)


# --- questions --------------------------------------------------------------------------------------------


def asks(*calls: tuple[str, object]) -> Reach:
    """As many questions as calls are open."""

    async def reach(scene: Scene) -> None:
        scene.on("tell me", Reply(WORDS, calls=list(calls)))
        await scene.begin()
        await scene.until(lambda: scene.questions() == len(calls))

    return reach


async def child_asks(scene: Scene) -> None:
    """A child's question is open, and its parent collects."""
    scene.on("tell me", Reply(calls=[call("agent__spawn", agent="child", prompt="work")]), Reply(WORDS, stall=b"e see"))
    scene.on("work", Reply(calls=[call("execute_command", command="echo one")]))
    await scene.begin()
    await scene.until(lambda: scene.questions() == 1)


async def root_and_child_ask(scene: Scene) -> None:
    """The root's question and its child's are open."""
    both = [call("agent__spawn", agent="child", prompt="work"), call("user__input", question="Who?")]
    scene.on("tell me", Reply(calls=both))
    scene.on("work", Reply(calls=[call("execute_command", command="echo one")]))
    await scene.begin()
    await scene.until(lambda: scene.questions() == 2)


def _questions() -> list[Moment]:
    def at(point: str, reach: Reach, **files: str) -> Moment:
        tools = {"enabled_tools": "execute_command"}
        return Moment("question", point, reach, ("tell me",), files=files, settings=tools)

    command, who = call("execute_command", command="echo one"), call("user__input", question="Who?")
    return [
        at("for permission", asks(command)),
        at("of the model", asks(call("user__ask", question="Which?", options=["a", "b"]))),
        at("two for permission", asks(command, call("execute_command", command="echo two"))),
        at("two of the model", asks(who, call("user__confirm", question="Sure?"))),
        at("for permission and of the model", asks(command, who)),
        at("of a child", child_asks, **FAMILY),
        at("of the root and of a child", root_and_child_ask, **FAMILY),
    ]


# --- compression ------------------------------------------------------------------------------------------

LONG = "word " * 200


def compresses(place: str, summary: Callable[[], Reply], *, by_hand: bool = False) -> Reach:
    """What was said is long, and its summary does not come."""

    async def reach(scene: Scene) -> None:
        await scene.line(place)
        if not by_hand:
            await scene.line(".set compression_threshold 100")
        said = summary()
        scene.on("tell me", LONG)
        scene.on(ANYTHING, said)
        if by_hand:
            assert (await scene.line("tell me"))["status"] == "done"
            await scene.begin(".compress session")
        else:
            await scene.begin()
        await (scene.stalled(said) if said.stall is not None else scene.held(said))

    return reach


def compacts(summary: Callable[[], Reply]) -> Reach:
    """An agent at work shortens what was said, before its next request."""

    async def reach(scene: Scene) -> None:
        said = summary()
        for count in (3000, 3001, 3002, 3003):
            scene.on("tell me", Reply(WORDS, calls=[call("execute_command", command=f"seq {count}")]))
        scene.on(ANYTHING, said)
        await scene.begin()
        await (scene.stalled(said) if said.stall is not None else scene.held(said))

    return reach


def _compression() -> list[Moment]:
    def held() -> Reply:
        return Reply(hold=trio.Event())

    def stalled() -> Reply:
        return Reply("a summary of it", stall=b"a sum")

    found = []
    for how, summary in (("held", held), ("under way", stalled)):
        for place in (".session", ".session kept"):
            where = "kept" if place.endswith("kept") else "in memory"
            reach = compresses(place, summary), compresses(place, summary, by_hand=True)
            found += [
                Moment("compression", f"automatic, {where}, {how}", reach[0], ("tell me", LONG.strip())),
                Moment("compression", f".compress session, {where}, {how}", reach[1], ("tell me", LONG.strip())),
            ]
    agent = {
        "agents/lead/config.yaml": LEAD
        + "global_tools: [execute_command]\ncompression_threshold: 3000\ncompression_keep_last: 2\n"
    }
    summed_up = "There is nothing to undo: the earlier messages were replaced by a summary."
    for how, summary in (("held", held), ("under way", stalled)):
        found.append(
            Moment(
                "compression",
                f"within a run, {how}",
                compacts(summary),
                ("execute_command",),
                summed_up,
                files=agent,
                settings=FREE,
            )
        )
    return found


# --- auto-continue ----------------------------------------------------------------------------------------

TODO = {"agents/lead/config.yaml": LEAD + "auto_continue: true\nmax_auto_continues: 5\n"}


def continues(last: Callable[[], Reply], *, at_once: bool = False) -> Reach:
    """The todo list has an open item, so the agent goes on by itself."""

    async def reach(scene: Scene) -> None:
        next = last()
        listed = [call("todo__init", goal="all"), call("todo__add", task="first")]
        scene.on("tell me", Reply(calls=listed), Reply(WORDS))
        scene.on(ANYTHING, next)
        await scene.begin()
        if at_once:
            while len(scene.models.requests) < 4:  # hello, the list, the words, going on
                await trio.lowlevel.checkpoint()
        else:
            await (scene.stalled(next) if next.stall is not None else scene.held(next))

    return reach


def _auto_continue() -> list[Moment]:
    def at(point: str, reach: Reach, *keeps: str) -> Moment:
        return Moment("auto-continue", point, reach, ("tell me", WORDS, *keeps), files=TODO)

    def held() -> Reply:
        return Reply(hold=trio.Event())

    return [
        at("between the turns", continues(held, at_once=True)),
        at("the next request is under way", continues(held)),
        at("the next reply begins", continues(lambda: Reply("still at it", stall=0))),
        at("the next reply is under way", continues(lambda: Reply("still at it", stall=b"still")), "still"),
    ]


# --- sub-agents -------------------------------------------------------------------------------------------


def spawns(child: Callable[[Scene], Reply], *, up: bool = False, deep: bool = False) -> Reach:
    """A child is at work: what it, or its own child, answers to `work`."""

    async def reach(scene: Scene) -> None:
        said, lead = child(scene), Reply(hold=trio.Event())
        scene.on("tell me", Reply(calls=[call("agent__spawn", agent="child", prompt="work")]))
        scene.on("tell me", lead)
        if deep:
            scene.on("work", Reply(calls=[call("agent__spawn", agent="grandchild", prompt="help")]))
            scene.on("work", Reply(hold=trio.Event()))
        scene.on("help" if deep else "work", said)
        await scene.begin()
        if up:
            await scene.until(scene.file("up").exists)
        else:
            await (scene.stalled(said) if said.stall is not None else scene.held(said))

    return reach


async def child_starts(scene: Scene) -> None:
    """The child was asked for, and has not yet asked a model."""
    scene.on("tell me", Reply(calls=[call("agent__spawn", agent="child", prompt="work")]), Reply(hold=trio.Event()))
    scene.on("work", Reply(hold=trio.Event()))
    await scene.begin()
    with trio.fail_after(PATIENCE):
        while not any("child" in each.path for each in scene.hub.actors.tree(LOCAL)):
            await trio.lowlevel.checkpoint()


def _sub_agents() -> list[Moment]:
    def at(point: str, reach: Reach) -> Moment:
        return Moment("sub-agent", point, reach, ("tell me", "agent__spawn"), files=FAMILY, settings=FREE)

    def held(_: Scene) -> Reply:
        return Reply(hold=trio.Event())

    def stalled(_: Scene) -> Reply:
        return Reply(WORDS, stall=b"e see")

    def tool(command: str) -> Callable[[Scene], Reply]:
        return lambda scene: Reply(
            calls=[call("execute_command", command=command.replace("DIRECTORY", str(scene.directory)))]
        )

    return [
        at("starts", child_starts),
        at("waits for its model", spawns(held)),
        at("streams", spawns(stalled)),
        at("plays a tool", spawns(tool(NAP), up=True)),
        at("plays a tool that ignores SIGTERM", spawns(tool(DEAF), up=True)),
        at("streams two deep", spawns(stalled, deep=True)),
        at("plays a tool two deep", spawns(tool(NAP), up=True, deep=True)),
    ]


# --- MCP --------------------------------------------------------------------------------------------------


def _mcp() -> list[Moment]:
    def files(*arguments: str) -> dict[str, str]:
        """A server that works while the scene is well, and is this one else."""
        odd, well = shlex.join(arguments), shlex.join(["/bin/sh", str(SERVERS / "tiny.sh")])
        script = f"[ -e DIRECTORY/well ] && exec {well}; export STARTS=DIRECTORY/up; exec {odd}"
        entry = {"command": "/bin/sh", "args": ["-c", script]}
        return {
            "agents/served/config.yaml": "name: served\ninstructions: You work.\nmcp_servers: [slow]\n",
            "mcp.json": json.dumps({"mcpServers": {"slow": entry}}),
        }

    def server(*flags: str) -> dict[str, str]:
        return files(sys.executable, "-S", str(SERVERS / "scripted.py"), *flags)

    async def starts(scene: Scene) -> None:
        scene.well(False)
        await scene.line(".agent served")  # whose servers nothing is known of yet
        await scene.begin()
        await scene.until(scene.file("up").exists)

    async def settles(scene: Scene) -> None:
        await starts(scene)
        await trio.sleep(0.1)

    silent = server("--never")
    deaf = server("--never", "--ignore-eof", "--deaf")
    mute = files("/bin/sh", str(SERVERS / "tiny.sh"), "mute")
    kind = "MCP start"
    return [
        Moment(kind, "as the process begins", starts, files=silent),
        Moment(kind, "before the handshake", settles, files=silent),
        Moment(kind, "before the handshake, deaf to SIGTERM", settles, files=deaf),
        Moment(kind, "while it lists its tools", settles, files=mute),
        Moment(kind, "while it is slow to start", settles, files=server("--slow-start", "30")),
    ]


# --- waiting for the provider -----------------------------------------------------------------------------


def refused(*replies: Callable[[], Reply]) -> Reach:
    """The provider does not answer; we wait to ask again."""

    async def reach(scene: Scene) -> None:
        said = [reply() for reply in replies]
        scene.on("tell me", *said)
        await scene.begin()
        await scene.held(said[-1])

    return reach


def _waiting() -> list[Moment]:
    def at(point: str, reach: Reach, *keeps: str) -> Moment:
        return Moment("waiting", point, reach, keeps, settings=TOOLS)

    def later() -> Reply:
        return Reply(status=429, error="slow down", headers={"retry-after": "1"})

    def broken() -> Reply:
        return Reply(status=503, error="it is broken", headers={"retry-after": "1"})

    def tool() -> Reply:
        return Reply(WORDS, calls=[call("execute_command", command="echo one")])

    return [
        at("a cooldown", refused(later)),
        at("before a second try", refused(broken)),
        at("a cooldown after a tool", refused(tool, later), "tell me", WORDS),
    ]


# --- all of them ------------------------------------------------------------------------------------------


def _all() -> list[Moment]:
    shell = Moment("tool", "a line of the shell", shell_line, ("tell me",), settings=FREE)
    return [
        *_streaming(),
        *_tools(),
        shell,
        *_questions(),
        *_compression(),
        *_auto_continue(),
        *_sub_agents(),
        *_mcp(),
        *_waiting(),
    ]


MOMENTS = [(moment, wire) for moment in _all() for wire in moment.wires]
KINDS = list(dict.fromkeys(moment.kind for moment, _ in MOMENTS))


def _some() -> list[tuple[Moment, str]]:
    """A tenth with a fixed seed: of each kind at least one."""
    draw, found = random.Random(16), []
    for kind in KINDS:
        of_kind = [each for each in MOMENTS if each[0].kind == kind]
        found += draw.sample(of_kind, max(1, round(len(of_kind) / 10)))
    return found


SOME = _some()
