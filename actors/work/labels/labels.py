"""Labels of texts and of files: the two labels, each with descriptions of the ways by which such text entered the run.

Labels of a file follow from its location (`PathLabels`):

    in the workspace        untrusted, unless the user trusts the workspace; private if its name is that of a secret
    installed software      none: `/usr` and its kin, toolchains and caches of the user's home
    everything else         untrusted and private: notes are the user's own, and mail is written by strangers

Names are resolved against the run's directory, with the symbolic links that exist at that moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

import msgspec

from ..tools.stored_results import readable

MOST_WAYS = 5
"""Ways of one label that are stored, and shown to the user."""


class Labels(msgspec.Struct, frozen=True, kw_only=True):
    """Labels of a text, a call, or a run.

    Attributes:
        untrusted: the ways by which text entered from outside, in words; empty if there are none.
        private: the ways by which private text of the user entered; empty if there are none.
    """

    untrusted: tuple[str, ...] = ()
    private: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.untrusted or self.private)

    @property
    def meet(self) -> bool:
        """True if both labels, untrusted and private, are present."""
        return bool(self.untrusted and self.private)

    def plus(self, other: Labels) -> Labels:
        """Return the union of both; each label stores its first `MOST_WAYS` ways."""
        if not other:
            return self
        return Labels(
            untrusted=_together(self.untrusted, other.untrusted), private=_together(self.private, other.private)
        )


NOTHING = Labels()


def _together(ways: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*ways, *more)))[:MOST_WAYS]


class PathLabels:
    """Labels of files for one run, by their real paths. Methods read the file system and block.

    Args:
        here: the run's directory.
        environ: environment that locates the user's home and the trust records.

    Attributes:
        here: the run's directory.
    """

    def __init__(self, here: Path, environ: Mapping[str, str]) -> None:
        self.here = here
        self._environ = environ

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Real paths of the workspace directories, without the additional directories that the run may work in."""
        from ..trust import root_of

        workspace = root_of(self.here, self._environ)
        return tuple(dict.fromkeys(os.path.realpath(each) for each in (workspace or self.here, self.here)))

    @cached_property
    def is_trusted(self) -> bool:
        """True if text in files of the workspace counts as text of the user: the user trusts the workspace.

        True also where no workspace is possible, as in the home directory.
        """
        from ..trust import workspace_of

        trusted = workspace_of(self.here, self._environ)
        return trusted is None or trusted.is_trusted

    def of_path(self, path: str, way: str, *, whole: bool = False, base: Path | None = None) -> Labels:
        """Return the labels of a file, or of the names in a directory.

        Args:
            way: description of the access, in words.
            whole: contents of all files below the directory are read.
            base: directory that a relative path starts from; None for the run's.
        """
        from ..sandbox.exposure import holds_secret, secret_below

        real = self._real(path, base)
        root = next((each for each in self.roots if _is_below(real, each)), None)
        if root is None:
            public = self._is_public(real) or self._is_result(real)
            return NOTHING if public else Labels(untrusted=(way,), private=(way,))
        names = Path(real).relative_to(root).parts
        # `.git/config` may contain credentials, in the URLs of its remotes.
        private = holds_secret(names) or (".git" in names and names[-1] in ("config", "credentials"))
        if whole and not private:
            private = bool(secret_below(real))
        return Labels(untrusted=() if self.is_trusted else (way,), private=(way,) if private else ())

    def of_any(self, paths: Iterable[str], way: str, *, base: Path | None = None) -> Labels:
        """Return the labels of paths, globs and URLs that a user, or the author of an agent, has named."""
        found = NOTHING
        for path in paths:
            if "://" in path:
                found = found.plus(Labels(untrusted=(f"{way} {path[:80]}",)))
                continue
            # A glob counts as a search of the directory before its first wildcard: any file below may match.
            start = path.split("*", 1)[0].split("?", 1)[0].split("[", 1)[0]
            found = found.plus(self.of_path(start or ".", f"{way} {path[:80]}", whole=start != path, base=base))
        return found

    def _real(self, path: str, base: Path | None) -> str:
        if path == "~" or path.startswith("~/"):
            path = (self._environ.get("HOME") or str(Path.home())) + path[1:]
        return os.path.realpath((base or self.here) / path)

    def _is_public(self, real: str) -> bool:
        from ..sandbox.exposure import SYSTEM
        from ..sandbox.protected_paths import no_secrets

        home = Path(self._environ.get("HOME") or Path.home())
        if real.split("/", 2)[1] in SYSTEM - {"sys"}:
            try:
                # Not world-readable, as a file of passwords that only root can read: not public.
                return bool(Path(real).stat().st_mode & 0o004)
            except OSError:
                return True
        return any(_is_below(real, each) for each in no_secrets(home))

    def _is_result(self, real: str) -> bool:
        """True for a complete result that the run stored itself: its labels are carried since the call."""
        results = readable.get()
        kept = None if results is None else results()
        return kept is not None and kept.may_be_read and _is_below(real, os.path.realpath(kept.directory))


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
