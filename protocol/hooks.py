"""Hooks: commands that run at events of a run, in Claude Code's JSON format.

    {"hooks": {
      "PreToolUse": [
        {"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh", "timeout": 10, "on_error": "deny"}]}
      ],
      "Stop": [{"hooks": [{"type": "command", "command": "notify-send done"}]}]
    }}

A command gets JSON on stdin and may answer with JSON on stdout. Exit status 2 refuses, with the reason on stderr
(`work/hooks`). In config.yaml the same structure is under the key `hooks`. `on_error` is Callboard's own key: the
result for a call whose hook failed (it hung, crashed, or its answer was invalid); the default is `allow`. Unknown
parts of a file cause warnings and are ignored.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from .mcp import jsonc
from .problems import Problem, did_you_mean, errors_in
from .reading import Cursor, Reading, in_file_order
from .tree import Mapping, describe, plain

Event = Literal[
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "Stop",
    "SubagentStop",
    "PreCompact",
    "Notification",
    "SessionEnd",
]
EVENTS: tuple[Event, ...] = get_args(Event)

_ELSEWHERE = frozenset(
    (
        "PermissionRequest",
        "PermissionDenied",
        "PostToolUseFailure",
        "SubagentStart",
        "PostCompact",
        "Setup",
        "TaskCompleted",
    )
)
"""Events of other programs: a hook for one of them is no misspelling."""

TIMEOUT = 60.0
"""Default timeout of a command in seconds."""

_KNOWN = ("type", "command", "args", "timeout", "on_error", "statusMessage", "if")
"""Keys of a hook. `statusMessage` is for a screen that Callboard does not have."""

_NO_EFFECT = ("async", "once", "shell")
"""Keys of Claude Code without an effect here."""

_PLAIN = re.compile(r"[\w, |-]*", re.ASCII)
"""Matcher that is no regular expression: names, separated by `|` or commas."""


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """Command of a hook.

    Attributes:
        matcher: the tools (or sources, triggers) it is for: names, a regular expression, or "" for all.
        command: a shell line; with `args` a program.
        args: arguments of the program, started without a shell; None for a shell line.
        timeout: seconds.
        condition: additional pattern of a call, `Bash(git *)`; "" for none.
        on_error: result for a call if the hook fails.
        file: file with this hook.
    """

    command: str
    args: tuple[str, ...] | None = None
    matcher: str = ""
    timeout: float = TIMEOUT
    condition: str = ""
    # As in Claude Code: only exit status 2 blocks a call, and a hook that fails in another way does not.
    on_error: Literal["allow", "deny"] = "allow"
    file: str = ""


class HookEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"condition": "if"}):
    """Command of a hook in config.yaml."""

    type: Literal["command"]
    command: str
    timeout: Annotated[float, Meta(gt=0, description="Time limit in seconds; 60 by default.")] = TIMEOUT
    condition: Annotated[str, Meta(description="Run only for matching calls, such as Bash(git *).")] = ""
    on_error: Annotated[Literal["allow", "deny"], Meta(description="Decision about a call if the hook fails.")] = (
        "allow"
    )


class HookGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Commands for the same tools, as config.yaml has them."""

    matcher: Annotated[str, Meta(description="Names of tools, with | between them, or a regular expression.")] = ""
    hooks: tuple[HookEntry, ...]


HookTable = dict[Event, tuple[Hook, ...]]
GroupsByEvent = dict[Event, tuple[HookGroup, ...]]


def matches(matcher: str, name: str) -> bool:
    """Return whether a matcher fits a name: one of a list of names, or a regular expression for the whole name.

    "" and `*` fit every name; an invalid expression fits none.
    """
    if matcher in ("", "*"):
        return True
    if _PLAIN.fullmatch(matcher):
        # As in Claude Code: a plain matcher is compared with whole names, so `Edit` does not match `MultiEdit`.
        return name in re.split(r"[|,]\s*", matcher)
    try:
        return re.fullmatch(matcher, name) is not None
    except re.error:
        return False


def read_hooks(text: str, file: str) -> tuple[HookTable, list[Problem]]:
    """Return the hooks of a JSON file, and their problems; no hooks if the file has `disableAllHooks: true`.

    Other keys of the file belong to other programs.
    """
    # Editors on Windows begin UTF-8 files with a byte order mark, which JSON does not allow.
    root, problems = jsonc.parse(text.removeprefix("\ufeff"), file)
    if root is None:
        return {}, problems
    reading = Reading(file)
    top = Cursor(reading, root)
    found: HookTable = {}
    if not isinstance(root, Mapping):
        top.misfit('{"hooks": {"PreToolUse": [...]}}')
    elif "hooks" in top.entries:
        off = top.get("disableAllHooks")
        if off is None or plain(off.node) is not True:
            found = _table(top["hooks"], file)
    return found, in_file_order([*problems, *reading.problems])


def table_of(groups: GroupsByEvent, file: str) -> HookTable:
    """Return the hooks of config.yaml."""
    return {
        event: tuple(
            Hook(
                command=each.command,
                matcher=group.matcher,
                timeout=each.timeout,
                condition=each.condition,
                on_error=each.on_error,
                file=file,
            )
            for group in listed
            for each in group.hooks
        )
        for event, listed in groups.items()
    }


def _table(hooks: Cursor, file: str) -> HookTable:
    found: HookTable = {}
    if not isinstance(hooks.node, Mapping):
        hooks.misfit('{"PreToolUse": [...]}')
        return found
    for name in hooks.entries:
        event = next((each for each in EVENTS if each == name), None)
        if event is None:
            near = None if name in _ELSEWHERE else did_you_mean(name, EVENTS)
            hint = near or f"the supported events are {', '.join(EVENTS)}"
            hooks.key(name).warn(
                "unknown_event", f"Callboard does not support the event `{name}`; its hooks never run", hint
            )
        elif not hooks[name].is_list:
            hooks[name].misfit('[{"matcher": "...", "hooks": [...]}]')
        else:
            found[event] = tuple(hook for group in hooks[name].items for hook in _group(group, file))
    return found


def _group(group: Cursor, file: str) -> list[Hook]:
    matcher = group.get("matcher")
    pattern = "" if matcher is None else matcher.text
    if pattern is None:
        assert matcher is not None
        matcher.misfit("a name of a tool, several with `|` between them, or a regular expression")
        return []
    if not _PLAIN.fullmatch(pattern) and pattern != "*":
        try:
            re.compile(pattern)
        except re.error as error:
            assert matcher is not None
            matcher.error("bad_matcher", f"`matcher` is not a regular expression: {error}")
            return []
    listed = group.get("hooks")
    if listed is None or not listed.is_list:
        (listed or group).error(
            "wrong_type", "`hooks` is missing or not a list", expected='"hooks": [{"type": "command", ...}]'
        )
        return []
    return [hook for each in listed.items if (hook := _hook(each, pattern, file)) is not None]


def _hook(given: Cursor, matcher: str, file: str) -> Hook | None:
    before = len(given.reading.problems)
    kind = "command" if given.get("type") is None else given["type"].text
    command, args = given["command"].text, given.get("args")
    if kind != "command":
        what = f"a hook of type `{plain(given['type'].node) if kind is None else kind}` is not supported; it never runs"
        given.warn("unknown_hook", what, "write a command: {type: command, command: ...}")
        return None
    if not command:
        given.key("command").error("missing_key", "the hook has no `command`", expected="a shell command")
    timeout = _number(given)
    on_error = given.get("on_error")
    if on_error is not None and on_error.text not in ("allow", "deny"):
        on_error.error("wrong_value", f"`on_error` is {describe(on_error.node)}", expected="allow or deny")
    for key in given.entries:
        if key in _NO_EFFECT:
            given.key(key).warn("ignored_key", f"`{key}` of a hook has no effect in Callboard")
        elif key not in _KNOWN:
            given.key(key).warn("unknown_key", f"unknown key `{key}`; it has no effect")
    listed = None if args is None else [item.text for item in args.items]
    if args is not None and (not args.is_list or any(text is None for text in listed or ())):
        args.misfit("a list of texts")
    if errors_in(given.reading.problems[before:]):
        return None
    condition = given.get("if")
    return Hook(
        command=command or "",
        args=None if listed is None else tuple(text or "" for text in listed),
        matcher=matcher,
        timeout=timeout,
        condition="" if condition is None else condition.text or "",
        on_error="deny" if on_error is not None and on_error.text == "deny" else "allow",
        file=file,
    )


def _number(given: Cursor) -> float:
    timeout = given.get("timeout")
    value = TIMEOUT if timeout is None else plain(timeout.node)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        assert timeout is not None
        timeout.error("wrong_value", f"`timeout` is {describe(timeout.node)}", expected="seconds, more than 0")
        return TIMEOUT
    return float(value)
