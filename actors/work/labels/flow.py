"""Labels carried by a run, and the check before a call that sends data away.

    await flow.check(...)     before each tool call: ask the user if necessary, then add the labels of its result
    await flow.start(...)     before a process of a node starts: the same
    flow.add(labels)          other text has entered the run

Labels are added before the text arrives: a cancelled call may already have reached its server, and a killed process may
have written a file. Labels are never removed. Each change is recorded, so that the run can continue with it: in the
journal of a durable run, the file of a session, or the result of a remote child.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ....protocol.chat import AssistantTurn, TextPart, ToolTurn, Turn, UserTurn, parts_of
from ....protocol.errors import NobodyToAsk, SendingRefused
from ....protocol.events import Warned
from ....protocol.kernel.questions import Question
from ...io.imports import imported
from ..playback import in_the_world
from ..tools.tool import Arguments, Label, Tool
from .labels import MOST_WAYS, NOTHING, Labels, PathLabels

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ..knowledge.recipe import Recipe

Mode = Literal["off", "warn", "enforce"]

RULES = (
    ".actors.work.labels.call_labels",
    ".actors.work.sandbox.launch",
    ".actors.work.trust",
)
"""Modules that are imported in a thread, when a process or a call first needs them."""

NOTED = "labels"
"""Name of the labels in the journal of a durable run."""

_LONGEST_SHOWN = 2_000
_OWN = ("user__", "todo__", "agent__")


class Flow:
    """Labels of one run, and the policy for calls that send data away.

    Args:
        mode: `warn` emits a warning, `enforce` asks the user.
        here: the run's directory.
        environ: environment that locates the user's home and the trust records.
        typed: the words of the user, without text read from files, pipes, and knowledge bases.

    Attributes:
        carried: the labels that the run carries so far.
        knows_history: `carried` already covers the conversation that the run continues.
    """

    def __init__(self, mode: Mode, here: Path, environ: Mapping[str, str], typed: str = "") -> None:
        self.mode = mode
        self._here = here
        self._environ = environ
        self.typed = typed
        self.carried: Labels = NOTHING
        self.knows_history = False
        self._noted_by: list[Callable[[Labels], None]] = []
        self._described: dict[str, str] = {}
        self._warned: dict[str, None] = {}

    @cached_property
    def paths(self) -> PathLabels:
        """Labels of files, for the run's directory."""
        return PathLabels(self._here, self._environ)

    def add(self, labels: Labels) -> None:
        """Add labels to the run, and notify the callbacks of `noted_by` if this changes anything."""
        whole = self.carried.plus(labels)
        if whole != self.carried:
            self.carried = whole
            for note in self._noted_by:
                note(whole)

    def noted_by(self, note: Callable[[Labels], None]) -> None:
        """Register a callback that receives all labels of the run after each change."""
        self._noted_by.append(note)

    def reached(self, host: str) -> None:
        """Add the label for a host to which a process of the run is about to connect; `*` means any host."""
        self.add(Labels(untrusted=(f"a process that connected to {'any host' if host == '*' else host}",)))

    def knows(self, recipes: Sequence[Recipe]) -> None:
        """Add the labels of these knowledge bases, whose passages enter the run."""
        from .call_labels import of_knowledge

        if recipes:
            self.add(of_knowledge(recipes, self.paths))

    def labels_of(self, recipes: Sequence[Recipe]) -> frozenset[Label]:
        """Return the labels of a tool that searches these knowledge bases: `outside`, `private`, both, or none."""
        from .call_labels import of_knowledge

        found = of_knowledge(recipes, self.paths)
        said: dict[Label, tuple[str, ...]] = {"outside": found.untrusted, "private": found.private}
        return frozenset(label for label, ways in said.items() if ways)

    def describes(self, tools: Iterable[Tool]) -> None:
        """Record tools offered to a model: descriptions by MCP servers without the label `trusted` are untrusted text.

        `check` counts them as such. They do not become labels of the run.
        """
        for tool in tools:
            if tool.origin == "mcp" and "trusted" not in tool.labels:
                self._described.setdefault(
                    "".join(tool.server[:1]), f"the description of {tool.name} by its MCP server"
                )

    async def follows(
        self, history: Sequence[Turn], tools: Mapping[str, Tool], is_summary: Callable[[Turn], bool]
    ) -> None:
        """Add the labels of the conversation that the run continues, unless `knows_history`.

        They are derived from its turns: from the tools that were called, from files, and from summaries.
        """
        if self.knows_history:
            return
        from .call_labels import source_of

        calls: dict[str, tuple[str, Arguments]] = {}
        for turn in history:
            if isinstance(turn, AssistantTurn):
                calls.update((call.id, (call.name, call.arguments)) for call in turn.tool_calls)
            elif isinstance(turn, ToolTurn):
                name, arguments = calls.get(turn.call, (turn.name, {}))
                if (tool := tools.get(name)) is not None:
                    self.add(await source_of(tool, arguments, self.paths, past=True))
                # The tool is not in this run, so nothing is known of its result: both labels.
                elif not name.startswith(_OWN):
                    way = f"{name}, in an earlier run"
                    self.add(Labels(untrusted=(way,), private=(way,)))
            elif isinstance(turn, UserTurn):
                has_files = any(not isinstance(part, TextPart) for part in parts_of(turn.content))
                way = "a summary of an earlier conversation" if is_summary(turn) else "a file, in an earlier run"
                if has_files or is_summary(turn):
                    self.add(Labels(untrusted=(way,), private=(way,)))

    async def check(self, me: Actor, tool: Tool, arguments: Arguments) -> None:
        """Ask or warn the user about a call that could send private text away; then add the labels of its result.

        Such a call sends data, and the run's text together with what the call reads is both private and untrusted.

        Raises:
            SendingRefused: in mode `enforce`, the user did not agree, or could not be asked.
        """
        # Children, and functions without declared labels, have no labels of their own and do not send.
        if tool.origin in ("family", "function") and not tool.labels and tool.effect != "send":
            return
        from .call_labels import sends, source_of

        brings = await source_of(tool, arguments, self.paths)
        if self._meets(brings, "".join(tool.server[:1])) and await sends(tool, arguments, self.paths, self.typed):
            shown = str(arguments.get(tool.subject) if tool.subject else arguments)[:_LONGEST_SHOWN]
            await self._agreed(me, tool.name, shown, self.carried.plus(Labels(private=brings.private)))
        self.add(brings)

    async def start(self, me: Actor, name: str, what: str) -> None:
        """Check a process that no tool starts, in the same way as `check`.

        Args:
            name: name of the process in the sandbox configuration.
            what: description of the process for the user.

        Raises:
            SendingRefused: the user did not agree, or could not be asked.
        """
        await imported(*RULES)
        from .call_labels import exposure_named, of_process

        exposure = await exposure_named(name, self.paths)
        brings = of_process(exposure, what, self.paths)
        if self._meets(brings) and exposure.reaches == "anything":
            await self._agreed(me, name, what, self.carried.plus(Labels(private=brings.private)))
        self.add(brings)

    def _meets(self, brings: Labels, server: str = "") -> bool:
        """Return whether a call that sends data could leak private text on the instructions of untrusted text.

        Private text is text that the run has read, or text that the call itself reads. A process without a sandbox, or
        a server with files and a network, reads and sends in one call. For such a server its own description does not
        count as untrusted: it can leak the text without the model.
        """
        # Private text is in the run already: any untrusted text can make the model send it.
        if self.carried.private:
            return bool(self.carried.untrusted or self._described)
        others = any(name != server for name in self._described)
        return bool(brings.private and (self.carried.untrusted or others))

    async def heard_of_hooks(self) -> None:
        """Add the labels of text that a hook has printed, which the model reads."""
        await imported(*RULES)
        from ..hooks import NAME
        from .call_labels import exposure_named, of_process

        self.add(of_process(await exposure_named(NAME, self.paths), "a hook", self.paths))

    async def _agreed(self, me: Actor, name: str, shown: str, carried: Labels) -> None:
        """Ask the user for consent; in mode `warn`, emit one warning for each name instead.

        Raises:
            SendingRefused: the user does not agree, or no user can be asked.
        """
        outside = (*carried.untrusted, *self._described.values())[:MOST_WAYS]
        came = f"from outside by: {'; '.join(outside)}. Private by: {'; '.join(carried.private)}"
        if self.mode == "warn":
            # A replay starts no process, so its labels may be fewer than the run's and would depend on the machine.
            if name not in self._warned and in_the_world():
                self._warned[name] = None
                text = f"{name} can send data away, and this run has read text that came {came}"
                me.emit(Warned(code="labels", message=text))
            return
        question = Question(
            id="",
            actor="",
            kind="choice",
            text=f"Let {name} send this data away?\n{shown}\nThis run has read text that came {came}",
            options=("yes", "no"),
            rule="any answer but yes refuses the call, and is sent to the model",
            permission=name,
        )
        try:
            answer = str((await me.ask_person(question)).value).strip()
        except NobodyToAsk:
            answer = "no user can be asked"
        if answer.lower() not in ("yes", "y"):
            why = "" if answer.lower() in ("no", "n", "") else f" ({answer})"
            raise SendingRefused(
                f"'{name}' was not run: it can send data away, and this run has read text that came {came}. "
                f"A user has to approve the call{why}"
            )
