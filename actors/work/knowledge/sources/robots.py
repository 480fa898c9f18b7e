"""robots.txt, as RFC 9309 has it: the groups that name us, else those for everybody; the longest rule decides."""

from __future__ import annotations

from typing import final

NAME = "callboard"
LARGEST = 500 * 1024
RULES = 5000


@final
class Robots:
    """What a robots.txt allows.

    Attributes:
        delay: seconds that it wants between two requests.
    """

    def __init__(self, text: str) -> None:
        groups = _groups(text[:LARGEST])
        chosen = [group for group in groups if any(agent.partition("/")[0] == NAME for agent in group.agents)]
        chosen = chosen or [group for group in groups if "*" in group.agents]
        self._rules = [rule for group in chosen for rule in group.rules][:RULES]
        self.delay = max((group.delay for group in chosen), default=0.0)

    def allows(self, target: str) -> bool:
        """Whether a path (with its query) may be got."""
        best, allowed = -1, True
        for pattern, allow in self._rules:
            if (len(pattern), allow) > (best, allowed) and _matches(pattern, target):
                best, allowed = len(pattern), allow
        return allowed


class _Group:
    def __init__(self) -> None:
        self.agents: list[str] = []
        self.rules: list[tuple[str, bool]] = []
        self.delay = 0.0


def _groups(text: str) -> list[_Group]:
    groups: list[_Group] = []
    naming = False  # several names in a row share the rules that follow
    for line in text.splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if not colon:
            continue
        if key == "user-agent":
            if not naming:
                groups.append(_Group())
            if value:
                groups[-1].agents.append(value.lower())
            naming = True
        elif key in ("allow", "disallow", "crawl-delay") and groups:
            naming = False
            if key == "crawl-delay":
                groups[-1].delay = _seconds(value)
            elif value:
                groups[-1].rules.append((value, key == "allow"))
    return groups


def _seconds(text: str) -> float:
    return float(text) if text.replace(".", "", 1).isdecimal() else 0.0


def _matches(pattern: str, target: str) -> bool:
    """Prefix match with `*` and a final `$`. No regular expression: a stranger's could keep us busy for ever."""
    ends = pattern.endswith("$")
    first, *others = pattern.removesuffix("$").split("*")
    if not target.startswith(first):
        return False
    at = len(first)
    if ends and not others:
        return at == len(target)
    for number, part in enumerate(others):
        if ends and number == len(others) - 1:
            return target.endswith(part) and len(target) - len(part) >= at
        found = target.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True
