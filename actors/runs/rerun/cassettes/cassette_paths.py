"""Names for paths that differ between machines: a cassette has `‹cwd›/notes.txt`.

A path is replaced unless it is a part of a longer name. If several paths match, the longest is replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ....io.directories import cache_dir, state_dir
from ....io.temporary import system_directory

_ENDS = r"(?![\w.-]*[\w-])"
"""Text after a path, such as `/x`, a quote, or a full stop at the end of a sentence, but not more of the name."""


class NamedPaths:
    """Mapping between paths of this machine and names.

    Args:
        environ: environment of the process.
        cwd: working directory of the run.
        config_dir: configuration directory.
    """

    def __init__(self, environ: Mapping[str, str], cwd: Path, config_dir: Path) -> None:
        self._paths: dict[str, str] = {}
        self.add("cwd", cwd)
        self.add("config", config_dir)
        self.add("state", state_dir(environ))
        self.add("cache", cache_dir(environ))
        self.add("home", Path(environ.get("HOME") or Path.home()))
        self.add("tmp", system_directory(environ))

    def add(self, name: str, path: Path) -> None:
        """Add a name for a path. A path that has a name retains it."""
        # A run may report either form, for example if `/tmp` is a link.
        for form in (str(path.absolute()), os.path.realpath(path)):
            # `/` would match in every path.
            if len(form) > 1:
                self._paths.setdefault(form, name)
        self._compile()

    def add_word(self, name: str, word: str) -> None:
        """Add a name for a word other than a path, such as the id of the run."""
        self._paths.setdefault(word, name)
        self._compile()

    def _compile(self) -> None:
        # Alternatives are tried in order, so the longest path must be first.
        ordered = sorted(self._paths, key=len, reverse=True)
        self._out = re.compile("(?:" + "|".join(map(re.escape, ordered)) + ")" + _ENDS)
        back: dict[str, str] = {}
        for path, name in self._paths.items():
            # The first path of a name is the one that was passed, the second its real path.
            back.setdefault(name, path)
        self._back = back

    def named(self, value: Any) -> Any:
        """Return a value with names in place of the paths in its texts."""
        return texts(value, lambda text: self._out.sub(lambda found: f"‹{self._paths[found[0]]}›", text))

    def on_this_machine(self, value: Any) -> Any:
        """Return a value with the paths of this machine in place of names in its texts."""

        def put(found: re.Match[str]) -> str:
            return self._back.get(found[1], found[0])

        return texts(value, lambda text: re.sub(r"‹(\w+)›", put, text) if "‹" in text else text)


def texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with its texts changed; keys are not changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: texts(each, change) for key, each in value.items()}
    return [texts(each, change) for each in value] if isinstance(value, list | tuple) else value
