"""Paths that differ from machine to machine, by names: `‹cwd›/notes.txt` stands in a cassette.

A path counts where it is not a part of a longer name; of several that fit the longest does.
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
"""What may follow a path: `/x`, a quote, a full stop at the end of a sentence, and no more of a name."""


class Places:
    """See the module.

    Args:
        environ: of the process.
        cwd: the directory that the run works in.
        config_dir: where agents and settings live.
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
        """Call this path by this name as well; one that is named already keeps its name."""
        for form in (str(path.absolute()), os.path.realpath(path)):
            if len(form) > 1:
                self._paths.setdefault(form, name)
        self._made()

    def add_word(self, name: str, word: str) -> None:
        """The same for a word that is no path: the id of the run."""
        self._paths.setdefault(word, name)
        self._made()

    def _made(self) -> None:
        ordered = sorted(self._paths, key=len, reverse=True)
        self._out = re.compile("(?:" + "|".join(map(re.escape, ordered)) + ")" + _ENDS)
        back: dict[str, str] = {}
        for path, name in self._paths.items():
            back.setdefault(name, path)
        self._back = back

    def named(self, value: Any) -> Any:
        """A value with names for the paths in its texts."""
        return texts(value, lambda text: self._out.sub(lambda found: f"‹{self._paths[found[0]]}›", text))

    def here(self, value: Any) -> Any:
        """A value with the paths of this machine for the names in its texts."""

        def put(found: re.Match[str]) -> str:
            return self._back.get(found[1], found[0])

        return texts(value, lambda text: re.sub(r"‹(\w+)›", put, text) if "‹" in text else text)


def texts(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with its texts changed; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: texts(each, change) for key, each in value.items()}
    return [texts(each, change) for each in value] if isinstance(value, list | tuple) else value
