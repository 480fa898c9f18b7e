"""Regular expressions in workflow files: can they be read, do they mean what they look like, have they that group?"""

from __future__ import annotations

import re
import warnings
from typing import TypeVar

import msgspec

from ..edges import ByMatch, RegexExtract
from .reading import Part

G = TypeVar("G", RegexExtract, ByMatch)


def check_pattern(part: Part) -> None:
    """Report a regular expression that Python can't read."""
    pattern = part.text or ""
    try:
        _compiled(pattern)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        part.error(
            "bad_pattern",
            f"the pattern can't be read: {error}",
            expected="a regular expression of Python",
            hint="Hint: put a backslash before what is meant literally: `\\(`, `\\[`, `\\*`; in single quotes YAML "
            "leaves it alone.",
        )
        return
    if found := re.search(r"\\\\([sSdDwWbBnt])", pattern):
        part.warn(
            "escaped_twice",
            f"`\\\\{found[1]}` matches a backslash and the letter {found[1]}",
            f"write `\\{found[1]}`: without quotes, and in single ones, YAML takes a backslash as it is.",
        )


def with_group(block: G, config: Part) -> G:
    """The block with `group: "1"` as a number; a group that its pattern lacks is reported."""
    group = block.group
    if isinstance(group, str) and group.isascii() and group.isdigit():
        group = int(group)
        block = msgspec.structs.replace(block, group=group)
    if group is None or config["pattern"].is_broken:
        return block
    pattern = _compiled(block.pattern)
    there = group in pattern.groupindex if isinstance(group, str) else 0 <= group <= pattern.groups
    if not there:
        names = [str(i) for i in range(1, pattern.groups + 1)] + list(pattern.groupindex)
        carried = isinstance(block, RegexExtract)
        config["group"].report(
            "warning" if carried else "error",
            "unknown_group",
            f"the pattern has no group {group}" + ("; the output is carried unchanged" if carried else ""),
            expected=f"one of {', '.join(names)}" if names else "no `group`; the pattern has none",
            hint="Hint: put brackets around what is meant: `RESULT: (.*)`.",
        )
    return block


def _compiled(pattern: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(pattern)
