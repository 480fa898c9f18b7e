"""Unfinished lines of the user: sent ones, and those waiting for the connection or for the chat to open.

A line is added in the moment it is entered, so that an interrupt right after it finds it.
"""

from __future__ import annotations


class Sending:
    """Entered line.

    Attributes:
        text: entered text.
        behind: True if other lines were unfinished at that time.
        is_out: True if it was sent.
    """

    def __init__(self, text: str, *, behind: bool) -> None:
        self.text = text
        self.behind = behind
        self.is_out = False


class UnsentLines:
    """Unfinished lines; true while there are any."""

    def __init__(self) -> None:
        self._lines: list[Sending] = []

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, text: str, *, first: bool = False) -> Sending:
        """Add an entered line. `first`: a line of the program itself, which precedes lines entered so far."""
        line = Sending(text, behind=bool(self._lines) and not first)
        self._lines.insert(0 if first else len(self._lines), line)
        return line

    def send(self, line: Sending) -> bool:
        """Mark a line as sent; return False if it was withdrawn."""
        line.is_out = line in self._lines
        return line.is_out

    def end(self, line: Sending) -> None:
        """Remove a finished line."""
        if line in self._lines:
            self._lines.remove(line)

    def withdraw(self) -> list[Sending]:
        """Withdraw and return the lines that were not sent."""
        waiting = [each for each in self._lines if not each.is_out]
        self._lines = [each for each in self._lines if each.is_out]
        return waiting

    def go_over(self) -> None:
        """Forget sent lines when the user switches to another chat: they belong to the previous one."""
        self._lines = [each for each in self._lines if not each.is_out]
