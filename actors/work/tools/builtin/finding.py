"""fs_glob and fs_grep, bounded in hits and in seconds. The search itself is `workers/search.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .....protocol.errors import TimedOut, ToolFailed
from ..tool import Arguments
from .allowed_paths import AllowedPath, AllowedPaths, Setting, in_thread

if TYPE_CHECKING:
    from .....supervisors import Actor

WORKER = Path(__file__).with_name("workers") / "search.py"

NAMES = 200
"""Maximum paths that fs_glob returns."""

HITS = 200
"""Maximum lines that fs_grep returns."""

WIDTH = 400
"""Maximum characters of a line in the result of fs_grep."""

SECONDS = 20.0
"""Seconds for one search; hits found by then are returned."""

MARGIN = 5.0
"""Additional seconds after which a search that does not react to its alarm is killed."""


async def fs_glob(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Return paths, the most recently changed first."""
    text = arguments.get("path", "")
    found = await _searched(me, setting, text, task="glob", pattern=arguments["pattern"], hits=NAMES)
    notes = [_joined(text, path) for path in found["hits"]]
    if found["more"]:
        notes.append(f"[cut: {found['more']} more, all older]")
    return _matches_text(notes, found, f"no file matches {arguments['pattern']}")


async def fs_grep(me: Actor, setting: Setting, arguments: Arguments) -> str:
    """Return hits as path:line:text."""
    text = arguments.get("path", "")
    options = {"pattern": arguments["pattern"], "include": arguments.get("include", ""), "hits": HITS, "width": WIDTH}
    found = await _searched(me, setting, text, task="grep", **options)
    notes = [f"{_joined(text, path)}:{number}:{line}" for path, number, line in found["hits"]]
    if found["cut"] == "hits":
        notes.append(f"[cut after {HITS} hits; narrow the pattern, the path or `include`]")
    if found["skipped"]:
        notes.append(f"[{found['skipped']} files were too large to be searched]")
    return _matches_text(notes, found, "nothing found")


async def _searched(me: Actor, setting: Setting, path: str, **task: Any) -> dict[str, Any]:
    from .....supervisors.process import run_process

    place = await in_thread(lambda: _checked(setting.paths, path))
    seconds = min(SECONDS, setting.timeout)
    task |= {"root": str(place.root), "parts": place.parts, "seconds": seconds, **place.access.to_wire()}
    try:
        done = await run_process(
            me,
            [sys.executable, "-I", "-S", "-B", str(WORKER)],
            name="search",
            input=msgspec.json.encode(task),
            cwd=place.root,
            timeout=seconds + MARGIN,
        )
    except TimedOut:
        raise ToolFailed(f"the search did not end within {seconds + MARGIN:g} s; use a simpler pattern") from None
    if done.status != 0 or done.truncated:
        raise ToolFailed("the search failed", stderr=done.stderr_tail)
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    if "mistake" in found:
        raise ToolFailed(found["mistake"])
    return found


def _checked(paths: AllowedPaths, path: str) -> AllowedPath:
    place = paths.find(path)
    # Opened only for its errors: a missing path must not look like a search without hits.
    with place.opened():
        return place


def _joined(text: str, path: str) -> str:
    if not path:
        return text
    return path if text in ("", ".", "./") else f"{text.rstrip('/')}/{path}"


def _matches_text(lines: list[str], found: dict[str, Any], nothing: str) -> str:
    if found["cut"] == "time":
        lines.append(f"[cut: the search took more than {SECONDS:g} s; narrow the pattern or the path]")
    return "\n".join(lines) or f"({nothing})"
