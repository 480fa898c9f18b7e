"""The lines of a person that have not ended: which are sent, and which wait for the connection or for the chat to open.

A line is one of them in the very moment in which it is entered, so that an interrupt right behind it finds it.
"""

from __future__ import annotations


class Sending:
    """A line.

    Attributes:
        text: what was entered.
        behind: whether others had not ended then.
        is_out: whether it was sent.
    """

    def __init__(self, text: str, *, behind: bool) -> None:
        self.text = text
        self.behind = behind
        self.is_out = False


class Lines:
    """See the module. It is true while there are any."""

    def __init__(self) -> None:
        self._lines: list[Sending] = []

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, text: str) -> Sending:
        """A line was entered."""
        line = Sending(text, behind=bool(self._lines))
        self._lines.append(line)
        return line

    def send(self, line: Sending) -> bool:
        """It goes out; false if it was withdrawn."""
        line.is_out = line in self._lines
        return line.is_out

    def end(self, line: Sending) -> None:
        """It has ended."""
        if line in self._lines:
            self._lines.remove(line)

    def withdraw(self) -> list[Sending]:
        """Those that were not sent will not be; which these are."""
        waiting = [each for each in self._lines if not each.is_out]
        self._lines = [each for each in self._lines if each.is_out]
        return waiting

    def go_over(self) -> None:
        """The person is in another chat: what was sent is of the one before."""
        self._lines = [each for each in self._lines if not each.is_out]
