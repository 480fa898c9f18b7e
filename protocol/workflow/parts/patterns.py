"""Regular expressions in workflow files: can they be read, do they mean what they look like, have they that group?"""

from __future__ import annotations

import re
import warnings
from typing import TypeVar

import msgspec

from ...source import Mapping, Node, Path
from ..edges import ByMatch, RegexExtract
from .reading import WorkflowReading

G = TypeVar("G", RegexExtract, ByMatch)


def check_pattern(reading: WorkflowReading, pattern: str, at: Node, path: Path) -> None:
    """Report a regular expression that Python can't read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(pattern)
        except (re.error, ValueError, OverflowError, RecursionError) as error:
            reading.report(
                "error",
                "bad_pattern",
                f"the pattern can't be read: {error}",
                path,
                at,
                expected="a regular expression of Python",
                hint="Hint: put a backslash before what is meant literally: `\\(`, `\\[`, `\\*`; in single quotes YAML "
                "leaves it alone.",
            )
            return
    if re.search(r"\\\\[sSdDwWbBnt]", pattern):
        found = re.search(r"\\\\([sSdDwWbBnt])", pattern)
        assert found is not None
        reading.report(
            "warning",
            "escaped_twice",
            f"`\\\\{found[1]}` matches a backslash and the letter {found[1]}",
            path,
            at,
            hint=f"write `\\{found[1]}`: without quotes, and in single ones, YAML takes a backslash as it is.",
        )


def with_group(reading: WorkflowReading, block: G, config: Mapping, path: Path) -> G:
    """The block with `group: "1"` as a number; a group that its pattern lacks is reported."""
    group = block.group
    if isinstance(group, str) and group.isascii() and group.isdigit():
        group = int(group)
        block = msgspec.structs.replace(block, group=group)
    if group is None or (*path, "pattern") in reading.broken:
        return block
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pattern = re.compile(block.pattern)
    there = group in pattern.groupindex if isinstance(group, str) else 0 <= group <= pattern.groups
    if not there:
        names = [str(i) for i in range(1, pattern.groups + 1)] + list(pattern.groupindex)
        carried = isinstance(block, RegexExtract)
        reading.report(
            "warning" if carried else "error",
            "unknown_group",
            f"the pattern has no group {group}" + ("; the output is carried unchanged" if carried else ""),
            (*path, "group"),
            config.entries["group"].value,
            expected=f"one of {', '.join(names)}" if names else "no `group`; the pattern has none",
            hint="Hint: put brackets around what is meant: `RESULT: (.*)`.",
        )
    return block
