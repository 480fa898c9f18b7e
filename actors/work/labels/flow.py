"""Labels of texts, files and runs, and the check before a call that sends data away.

Of the two labels, `untrusted` and `private`, each lists the ways by which such text entered the run. Labels of a file
follow from its location (`PathLabels`):

    in the workspace        untrusted, unless the user trusts the workspace; private if its name is that of a secret
    installed software      none: `/usr` and its kin, toolchains and caches of the user's home
    everything else         untrusted and private: notes are the user's own, and mail is written by strangers

Names are resolved against the run's directory, with the symbolic links that exist at that moment. A run carries the
labels of all text that has entered it:

    await flow.check(...)     before each tool call: ask the user if necessary, then add the labels of its result
    await flow.start(...)     before a process of a node starts: the same
    flow.add(labels)          other text has entered the run

Labels are added before the text arrives: a cancelled call may already have reached its server, and a killed process may
have written a file. Labels are never removed. Each change is recorded, so that the run can continue with it: in the
journal of a durable run, the file of a session, or the result of a remote child.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from ....protocol.chat import AssistantTurn, TextPart, ToolTurn, Turn, UserTurn, parts_of
from ....protocol.errors import NobodyToAsk, SendingRefused
from ....protocol.events import Warned
from ....protocol.kernel.questions import Question
from ...io.imports import imported
from ..playback import in_the_world
from ..tools.stored_results import readable
from ..tools.tool import Arguments, Label, Tool

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ..knowledge.recipe import Recipe


MOST_WAYS = 5
"""Ways of one label that are stored, and shown to the user."""


class Labels(msgspec.Struct, frozen=True, kw_only=True):
    """Labels of a text, a call, or a run.

    Attributes:
        untrusted: the ways by which text entered from outside, in words; empty if there are none.
        private: the ways by which private text of the user entered; empty if there are none.
    """

    untrusted: tuple[str, ...] = ()
    private: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.untrusted or self.private)

    @property
    def meet(self) -> bool:
        """True if both labels, untrusted and private, are present."""
        return bool(self.untrusted and self.private)

    def plus(self, other: Labels) -> Labels:
        """Return the union of both; each label stores its first `MOST_WAYS` ways."""
        if not other:
            return self
        return Labels(
            untrusted=_together(self.untrusted, other.untrusted), private=_together(self.private, other.private)
        )


NOTHING = Labels()


def _together(ways: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*ways, *more)))[:MOST_WAYS]


class PathLabels:
    """Labels of files for one run, by their real paths. Methods read the file system and block.

    Args:
        here: the run's directory.
        environ: environment that locates the user's home and the trust records.

    Attributes:
        here: the run's directory.
    """

    def __init__(self, here: Path, environ: Mapping[str, str]) -> None:
        self.here = here
        self._environ = environ

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Real paths of the workspace directories, without the additional directories that the run may work in."""
        from ..trust import root_of

        workspace = root_of(self.here, self._environ)
        return tuple(dict.fromkeys(os.path.realpath(each) for each in (workspace or self.here, self.here)))

    @cached_property
    def is_trusted(self) -> bool:
        """True if text in files of the workspace counts as text of the user."""
        from ..trust import workspace_of

        trusted = workspace_of(self.here, self._environ)
        return trusted is None or trusted.is_trusted

    def of_path(self, path: str, way: str, *, whole: bool = False, base: Path | None = None) -> Labels:
        """Return the labels of a file, or of the names in a directory.

        Args:
            way: description of the access, in words.
            whole: contents of all files below the directory are read.
            base: directory that a relative path starts from; None for the run's.
        """
        from ..sandbox.exposure import holds_secret, secret_below

        real = self._real(path, base)
        root = next((each for each in self.roots if _is_below(real, each)), None)
        if root is None:
            public = self._is_public(real) or self._is_result(real)
            return NOTHING if public else Labels(untrusted=(way,), private=(way,))
        names = Path(real).relative_to(root).parts
        # `.git/config` may contain credentials, in the URLs of its remotes.
        private = holds_secret(names) or (".git" in names and names[-1] in ("config", "credentials"))
        if whole and not private:
            private = bool(secret_below(real))
        return Labels(untrusted=() if self.is_trusted else (way,), private=(way,) if private else ())

    def of_any(self, paths: Iterable[str], way: str, *, base: Path | None = None) -> Labels:
        """Return the labels of paths, globs and URLs that a user, or the author of an agent, has named."""
        found = NOTHING
        for path in paths:
            if "://" in path:
                found = found.plus(Labels(untrusted=(f"{way} {path[:80]}",)))
                continue
            # A glob counts as a search of the directory before its first wildcard: any file below may match.
            start = path.split("*", 1)[0].split("?", 1)[0].split("[", 1)[0]
            found = found.plus(self.of_path(start or ".", f"{way} {path[:80]}", whole=start != path, base=base))
        return found

    def _real(self, path: str, base: Path | None) -> str:
        if path == "~" or path.startswith("~/"):
            path = (self._environ.get("HOME") or str(Path.home())) + path[1:]
        return os.path.realpath((base or self.here) / path)

    def _is_public(self, real: str) -> bool:
        from ..sandbox.exposure import SYSTEM
        from ..sandbox.protected_paths import no_secrets

        home = Path(self._environ.get("HOME") or Path.home())
        if real.split("/", 2)[1] in SYSTEM - {"sys"}:
            try:
                # Not world-readable, as a file of passwords that only root can read: not public.
                return bool(Path(real).stat().st_mode & 0o004)
            except OSError:
                return True
        return any(_is_below(real, each) for each in no_secrets(home))

    def _is_result(self, real: str) -> bool:
        """True for a complete result that the run stored itself: its labels are carried since the call."""
        results = readable.get()
        kept = None if results is None else results()
        return kept is not None and kept.may_be_read and _is_below(real, os.path.realpath(kept.directory))


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


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
        paths: labels of files, for the run's directory.
        typed: the words of the user, without text read from files, pipes, and knowledge bases.

    Attributes:
        carried: the labels that the run carries so far.
        knows_history: `carried` already covers the conversation that the run continues.
    """

    def __init__(self, mode: Mode, paths: PathLabels, typed: str = "") -> None:
        self.mode = mode
        self.paths = paths
        self.typed = typed
        self.carried: Labels = NOTHING
        self.knows_history = False
        self._noted_by: list[Callable[[Labels], None]] = []
        self._described: dict[str, str] = {}
        self._warned: dict[str, None] = {}

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
        """Return the labels of a tool that searches these knowledge bases."""
        from .call_labels import of_knowledge

        found = of_knowledge(recipes, self.paths)
        said: dict[Label, tuple[str, ...]] = {"outside": found.untrusted, "private": found.private}
        return frozenset(label for label, ways in said.items() if ways)

    def describes(self, tools: Iterable[Tool]) -> None:
        """Add the tools offered to a model, whose descriptions by MCP servers may be untrusted.

        Descriptions by MCP servers without the label `trusted` count as untrusted text.
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
        """Ask about a call that sends data away, or warn of it; then add the labels of its result.

        Raises:
            SendingRefused: the user did not agree, or could not be asked.
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
