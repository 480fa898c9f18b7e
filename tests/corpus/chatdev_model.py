"""A model that plays ChatDev's workflows: what it says depends on its role, what it calls on how often it was asked.

So the same workflow is played alike by Callboard and by ChatDev's own engine, and what both did can be compared.
Skills, which both offer in ways of their own, are left alone.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from corpus.chatdev_calls import CALLS

Call = tuple[str, dict[str, Any]]

ARGUMENTS: dict[str, dict[str, Any]] = {
    name: told.arguments for functions in CALLS.values() for name, told in functions.items()
}
ARGUMENTS["render_manim"] = {"script_path": "scene.py"}
NOT_HERE = frozenset({"web_search", "read_webpage_content"})
"""Functions that only wait for a network that is not there."""

PERSON = "print('ACCEPT')"
"""What a person answers: it is code where code is wanted."""

AT_ONCE = 2
"""Tools that are called before an answer."""


class Player:
    """The model of one run.

    Attributes:
        called: names of the tools it has called, in order.
    """

    def __init__(self) -> None:
        self.called: list[str] = []
        self._asked: Counter[str] = Counter()

    def says(self, role: str, offered: list[str], results: int) -> list[Call] | str:
        """Calls of tools, or an answer.

        Args:
            offered: the names of the tools.
            results: how many results of calls it was shown since it last answered.
        """
        names = sorted(name for name in offered if name not in NOT_HERE and "skill" not in name)
        role = " ".join(role.split())[:200]
        if names and not results:
            first = self._asked[role] * AT_ONCE
            wanted = dict.fromkeys(names[(first + n) % len(names)] for n in range(AT_ONCE))
            self.called += wanted
            return [(name, ARGUMENTS.get(name, {})) for name in wanted]
        self._asked[role] += 1
        digest = hashlib.sha256(role.encode()).hexdigest()[:6]
        return f"ACCEPT. Verdict: STOP. By {digest}.\n```python\nprint('made by {digest}')\n```"
