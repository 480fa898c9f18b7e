"""Evaluation of permission rules (`protocol.permissions`) for one call.

A rule is selected by the tool's name. Rules named `server:NAME` and `host:NAME` apply to calls that go to that MCP
server or host, whichever tool makes them. Of several applicable rules the strictest wins.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from functools import cached_property
from urllib.parse import unquote, urlsplit

from ....protocol.permissions import PermissionRule, Verdict
from ....protocol.permissions import Permissions as Rules
from ..sandbox.hosts import means
from .path_rules import STRICTNESS, PathContext, PathRule, folds, forms_of, weighed
from .tool import Arguments, Json, Tool, text_of

SERVER, HOST = "server:", "host:"

_VALUES = 1_000
"""Maximum number of texts among the arguments of a call that patterns are matched with."""

_LONGEST_PATH = 4_096
_FILE_URI = re.compile(r"file:(?://(?:localhost)?)?(?=/)", re.IGNORECASE)


class JudgedCall:
    """A tool call prepared for comparison with rules.

    Attributes:
        tool, here: the arguments.
        names: names by which rules may refer to the tool.
        text: the text that patterns are matched with: the subject, or else the JSON text of all arguments.
        forms: the absolute paths of the subject, if it is a path (`path_rules.forms_of`).
        server: the MCP server that the call goes to; "" for none.
        fold: see `PathRule.verdict`.
    """

    def __init__(self, tool: Tool, arguments: Arguments, here: PathContext) -> None:
        self.tool = tool
        self.here = here
        self.names = (tool.name, tool.alias) if tool.alias else (tool.name,)
        value = arguments.get(tool.subject) or "" if tool.subject else arguments
        text = value if isinstance(value, str) else text_of(value)
        path = tool.subject == "path"
        self.text = text if path else text.strip()
        self.forms = forms_of(text, here) if path else ()
        self.server = tool.alias.partition("__")[0] if tool.origin == "mcp" else ""
        self.fold = (path or tool.reads) and folds(self.forms[-1] if self.forms else here.real)
        self._arguments = arguments

    @cached_property
    def host(self) -> tuple[str, int] | None:
        """Host and port of the call, if its subject is a URL."""
        if self.tool.subject != "url":
            return None
        try:
            url = urlsplit(self.text if "://" in self.text else f"https://{self.text}")
            return (url.hostname, url.port or (80 if url.scheme == "http" else 443)) if url.hostname else None
        except ValueError:
            return None

    @cached_property
    def values(self) -> list[tuple[str, tuple[str, ...]]]:
        """The other texts among the arguments, each with the paths that it may mean.

        Empty for a built-in tool with a subject.
        """
        if self.tool.origin == "builtin" and self.tool.subject:
            return []
        others = {name: value for name, value in self._arguments.items() if name != self.tool.subject}
        return [(text, _as_path(text, self.here)) for text in _texts_in(others)]


def ruled(rules: Rules, call: JudgedCall) -> Verdict | None:
    """Return the verdict of these rules on a call; None if no rule applies."""
    rule = rule_for(rules, call.names)
    said = by_subject(rule, call) if isinstance(rule, PermissionRule) else rule
    for _, other in places(rules, call):
        found = by_subject(other, call) if isinstance(other, PermissionRule) else other
        said = found if said is None else stricter(said, found)
    return said


def denials(rules: Rules) -> Rules:
    """Return the rules without their permissions and questions.

    A rule's `allow` is included if it also denies: a longer `allow` pattern is an exception from a denial.
    """
    found: Rules = {}
    for name, rule in rules.items():
        if rule == "deny":
            found[name] = rule
        elif isinstance(rule, PermissionRule):
            found[name] = PermissionRule(allow=rule.allow, deny=rule.deny)
    return found


def of_denials(rules: Rules, call: JudgedCall) -> Verdict | None:
    """Return `deny` for a call that rules deny, `ask` for a shell line that they may deny, else None."""
    if not call.tool.shell:
        return "deny" if ruled(rules, call) == "deny" else None
    said = ruled(denials(rules), call)
    return None if said == "allow" else said


def places(rules: Rules, call: JudgedCall) -> list[tuple[str, Verdict | PermissionRule]]:
    """Return the rules for the server and the host that the call goes to, with their names."""
    return [(name, rule) for name, rule in rules.items() if ":" in name and _is_there(name, call)]


def _is_there(name: str, call: JudgedCall) -> bool:
    if name.startswith(SERVER):
        return bool(call.server) and fnmatchcase(call.server, name[len(SERVER) :])
    return name.startswith(HOST) and call.host is not None and means(name[len(HOST) :], *call.host)


def of_host(rules: Rules, host: str, port: int) -> tuple[Verdict, str] | None:
    """Return the verdict of these rules on a network host, and the longest pattern that matches it."""
    found = []
    for name, rule in rules.items():
        if name.startswith(HOST) and isinstance(rule, str) and means(name[len(HOST) :], host, port):
            found.append((len(name), STRICTNESS[rule], rule, name[len(HOST) :]))
    return max(found)[2:] if found else None


def rule_for(rules: Rules, called: tuple[str, ...]) -> Verdict | PermissionRule | None:
    """Return the rule for a tool by its names. A full name precedes patterns; of those the longest wins."""
    for name in called:
        if name in rules:
            return rules[name]
    names = [name for name in rules if any(fnmatchcase(each, name) for each in called)]
    return rules[max(names, key=len)] if names else None


def stricter(said: Verdict, other: Verdict | None) -> Verdict:
    return said if other is None or STRICTNESS[said] >= STRICTNESS[other] else other


def by_subject(rule: PermissionRule, call: JudgedCall) -> Verdict | None:
    if call.tool.subject == "path":
        paths = PathRule.of(rule, call.here)
        said = paths.verdict(call.forms, fold=call.fold)
        others = [paths.verdict(forms, fold=call.fold) for _, forms in call.values if forms]
        # Further paths among the arguments can only make the verdict stricter.
        counting = (said, *(other for other in others if other != "allow"))
        return max(counting, key=lambda each: -1 if each is None else STRICTNESS[each])
    if call.tool.shell:
        from .shell_rules import judged

        return judged(weighed(rule), call.text)
    return next((verdict for verdict, pattern in weighed(rule) if _matches(pattern, verdict, call)), None)


def _matches(pattern: str, verdict: Verdict, call: JudgedCall) -> bool:
    if _like(call.text, pattern):
        return True
    if verdict == "allow" or not call.values:
        return False
    # Arguments of a tool without a path subject may still be paths: for strict verdicts compare them both ways.
    rule = PathRule.of(PermissionRule(deny=(pattern,)), call.here)
    return any(_like(text, pattern) or rule.verdict(forms) is not None for text, forms in call.values)


def _like(text: str, pattern: str) -> bool:
    """Return True if a text matches. Only `*` and `?` are special."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def _texts_in(arguments: Json) -> list[str]:
    found: list[str] = []
    todo = [arguments]
    while todo and len(found) < _VALUES:
        value = todo.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            todo += reversed(value.values())
        elif isinstance(value, list):
            todo += reversed(value)
    return found


def _as_path(text: str, here: PathContext) -> tuple[str, ...]:
    """Return the paths that a text among an external tool's arguments may mean; none if it looks like plain words."""
    if not text or len(text) > _LONGEST_PATH or "\n" in text or "\0" in text:
        return ()
    uri = _FILE_URI.match(text)
    if uri is not None:  # A tool may decode the rest of the URI or use it unchanged, so both forms count.
        path = text[uri.end() :]
        return tuple(dict.fromkeys((*forms_of(unquote(path), here), *forms_of(path, here))))
    if "://" in text:
        return ()
    if not text.startswith(("/", "./", "../", "~")):
        first = text.partition("/")[0]
        # A plain word counts as a path only if its first component exists.
        if not os.path.lexists(os.path.join(here.real, first)):  # noqa: PTH118 - texts
            return ()
    return forms_of(os.path.expanduser(text), here)  # noqa: PTH111 - texts
