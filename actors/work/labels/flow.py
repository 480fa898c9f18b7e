"""What one conversation carries, and what is done about a call of it that sends something away.

    below()     a conversation that is made from this one carries what this one carries then
    over()      what it carries at its end is carried by what was made of it: its caller
    check(...)  before a call

What it carries is found out from its turns, each time: so it is the same when a durable run goes on and in the next
turn of a session. What a summary has replaced stays as long as the process does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from ....protocol.chat import AssistantTurn, ToolTurn, Turn
from ....protocol.errors import NobodyToAsk, ToolFailed
from ....protocol.events import Warned
from ....protocol.kernel.questions import Question
from ..tools.tool import Arguments, Tool
from .labels import NOTHING, Labels
from .setting import Setting

if TYPE_CHECKING:
    from ....supervisors import Actor

Mode = Literal["off", "warn", "enforce"]

_LETTERS = ("agent__send_message", "agent__check_inbox")
_LONGEST_SHOWN = 2_000


class Flow:
    """See the module.

    Args:
        mode: what is done: nothing, a warning, or a question.
        setting: the run's directory.
        above: whose conversation this one is made from.
        carried: what it carries from the beginning.

    Attributes:
        carried: what it carries so far.
        prompt: what the user has said; "" where another agent, a node or a summary speaks to the model.
    """

    def __init__(
        self,
        mode: Mode,
        setting: Setting,
        above: Flow | None = None,
        carried: Labels = NOTHING,
    ) -> None:
        self.mode = mode
        self.setting = setting
        self.carried = carried
        self._above = above
        self.prompt = ""
        self._heard = 0
        self._last: Turn | None = None
        self._calls: dict[str, tuple[str, Arguments]] = {}
        self._warned: set[str] = set()

    def below(self, carried: Labels = NOTHING) -> Flow:
        """That of a conversation that is made from this one; `carried` is what else it begins with."""
        return Flow(self.mode, self.setting, self, self.carried.plus(carried))

    def add(self, labels: Labels) -> None:
        """It carries this as well from now on."""
        self.carried = self.carried.plus(labels)

    def over(self, said: Sequence[Turn], tools: Mapping[str, Tool]) -> None:
        """It has ended; its caller reads what it has said."""
        self.hear(said, tools)
        if self._above is not None:
            self._above.add(self.carried)

    def hear(self, said: Sequence[Turn], tools: Mapping[str, Tool]) -> None:
        """Take in what was said since."""
        if self._heard and (self._heard > len(said) or said[self._heard - 1] is not self._last):
            self._heard = 0  # it was shortened: what stands where has changed
        for turn in said[self._heard :]:
            if isinstance(turn, AssistantTurn):
                for call in turn.tool_calls:
                    self._calls[call.id] = call.name, call.arguments
            elif isinstance(turn, ToolTurn):
                self._took(turn, tools)
        self._heard = len(said)
        self._last = said[-1] if said else None

    def _took(self, turn: ToolTurn, tools: Mapping[str, Tool]) -> None:
        name, arguments = self._calls.get(turn.call, (turn.name, {}))
        tool = tools.get(name)
        if tool is not None:
            from .sources import carries

            self.add(carries(tool, arguments, self.setting))
        elif "__" in name and not name.startswith(("user__", "todo__", "agent__")):
            self.add(Labels(untrusted=(name,)))  # a server's, that is offered no more
        if name in _LETTERS:
            self._share()

    def _share(self) -> None:
        """What is written to others, and read from them, is carried by all that work above and below here."""
        above = self._above
        if above is not None:
            above.add(self.carried)
            self.add(above.carried)

    async def check(
        self, me: Actor, tool: Tool, arguments: Arguments, said: Sequence[Turn], tools: Mapping[str, Tool]
    ) -> None:
        """Warn of a call that sends something away, or have a person asked about it.

        Raises:
            ToolFailed: it must not be made.
        """
        if self.mode == "off":
            return
        self.hear(said, tools)
        if not self.carried.meet:
            return
        from .sinks import sends

        if not sends(tool, arguments, self.setting, self.prompt):
            return
        came = f"from outside by: {'; '.join(self.carried.untrusted)}. Private by: {'; '.join(self.carried.private)}"
        if self.mode == "warn":
            if tool.name not in self._warned:
                self._warned.add(tool.name)
                text = f"{tool.name} sends something away, from a conversation with text that came {came}"
                me.emit(Warned(code="labels", message=text))
            return
        shown = str(arguments.get(tool.subject) if tool.subject else arguments)[:_LONGEST_SHOWN]
        question = Question(
            id="",
            actor="",
            kind="choice",
            text=f"Let {tool.name} send this away?\n{shown}\nWhat the agent has read came {came}",
            options=("yes", "no"),
            rule="any other answer is a no, and the model reads it",
            permission=tool.name,
        )
        try:
            answer = str((await me.ask_person(question)).value).strip()
        except NobodyToAsk:
            answer = "nobody is there to be asked"
        if answer.lower() not in ("yes", "y"):
            why = "" if answer.lower() in ("no", "n", "") else f" ({answer})"
            raise ToolFailed(
                f"'{tool.name}' was not run: it sends something away, and this conversation has read what came {came}. "
                f"A person has to agree to that{why}"
            )
