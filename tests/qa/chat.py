"""The conversation at the terminal, as the rows use it: lines are typed, and what comes of them is waited for."""

from __future__ import annotations

from contextlib import ExitStack

from qa.home import QaHome
from qa.terminal import CTRL_U, Terminal

TEMPLATE = (
    "{?agent a:{agent} }{?role r:{role} }{?session s:{session} }{?rag k:{rag} }{?running busy }"
    "{model_name}>{color.reset} "
)
"""`left_prompt`: what the chat is in, and whether something is under way."""

IDLE = r"^(?!.*busy ).*(model|other)> *$"
IN = {"agent": "a:", "role": "r:", "rag": "k:", "session": "s:"}


class Chat:
    """One `callboard` at a terminal; begun anew when it is gone, or does not come back to its prompt.

    Attributes:
        terminal: the terminal.
    """

    terminal: Terminal

    def __init__(self, qa_home: QaHome, *arguments: str) -> None:
        self.qa_home = qa_home
        self._arguments = arguments
        self._open = ExitStack()
        self._settings: dict[str, object] = {}

    def begin(self, **settings: object) -> None:
        """Starts the program with these settings, if it does not run with them."""
        if self._begun and settings == self._settings and self._is_back():
            return
        self.close()
        self._settings = settings
        self.qa_home.settings(left_prompt=TEMPLATE, right_prompt="", **{"save_session": False, **settings})
        self.terminal = self._open.enter_context(self.qa_home.terminal(*self._arguments))
        self.idle()

    @property
    def _begun(self) -> bool:
        return hasattr(self, "terminal") and self.terminal.alive

    def _is_back(self) -> bool:
        """Whether it is at an empty prompt, in nothing."""
        try:
            self.terminal.press(CTRL_U)
            self.terminal.asks(IDLE, within=2)
            for what, mark in IN.items():
                if f"{mark}" in self.terminal.prompt():
                    self.terminal.line(f".exit {what}")
                    self.terminal.asks(rf"^(?!.*{mark}).*{IDLE[1:]}", within=3)
        except AssertionError:
            return False
        return True

    def idle(self) -> str:
        """Waits for the prompt; what is shown since the last line."""
        return self.terminal.asks(IDLE)

    def say(self, line: str, shows: str) -> str:
        """Types a line, and waits for what it shows and for the prompt; all that is shown."""
        self.terminal.line(line)
        self.terminal.shows(shows)
        return self.idle()

    def answer(self, key: str) -> str:
        """Answers the question of a command, and waits for its end."""
        self.terminal.choose(key)
        self.terminal.gone("> callboard asks")
        return self.idle()

    def edits(self, line: str) -> str:
        """Types a line that opens the editor, and waits until that is closed and the prompt is back."""
        self.qa_home.edited.unlink(missing_ok=True)
        self.terminal.line(line)
        self.terminal.sees(self.qa_home.edited.exists, "the editor was not opened")
        self.terminal.sees(lambda: self.terminal.is_raw, "the editor was not closed")
        return self.idle()

    def into(self, line: str, mark: str) -> None:
        """Types a line that changes what the chat is in, and waits for the prompt to say so."""
        self.terminal.line(line)
        self.terminal.asks(rf"^(?=.*{mark}){IDLE[1:]}")

    def out(self, line: str, mark: str) -> None:
        """Types a line after which the prompt does not show this any more."""
        self.terminal.line(line)
        self.terminal.asks(rf"^(?!.*{mark}){IDLE[1:]}")

    def close(self) -> None:
        """Ends it."""
        self._open.close()
        self._open = ExitStack()
