"""Origin of a bundle as users write it: `URL[#ref]` of a git repository, or a directory."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from ....protocol.errors import UsageError
from ...io.redact import Redactor

BUILT_IN = "builtin:"
"""Source of the items that come with Callboard."""

FORMS = (
    "https://…, ssh://…, git@host:path or file://…, and #REF behind it for a branch, a tag or a commit; or a directory"
)

_REMOTE = re.compile(r"(?:https|ssh)://(?P<user>[^/@\s-][^/@\s]*@)?[A-Za-z0-9\[][^\s/@]*/\S+", re.IGNORECASE)
_SCP = re.compile(r"[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:(?!/?$)[^\s:][^\s]*")
_REF = re.compile(r"[A-Za-z0-9._/+][A-Za-z0-9._/+-]{0,199}")


class BundleSource(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a bundle.

    Attributes:
        url: URL for git, absolute path of a directory, or `BUILT_IN`.
        ref: branch, tag or commit; "" for the repository's HEAD.
        folder: the directory; None for a repository.
    """

    url: str
    ref: str = ""
    folder: Path | None = None

    @property
    def name(self) -> str:
        """Default name of the bundle: the last part of the URL."""
        last = re.split(r"[/:]", self.url.rstrip("/:"))[-1].removesuffix(".git")
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-._")[:64]
        return name or "bundle"

    @property
    def shown(self) -> str:
        """Origin in the form in which users write it."""
        return f"{self.url}#{self.ref}" if self.ref else self.url


def read_source(text: str, here: Path) -> BundleSource:
    """Parse the origin of a bundle; a relative path starts from `here`.

    Raises:
        UsageError: the text is neither a supported URL nor a directory.
    """
    directory = _directory(text, here)
    if directory is not None:
        return BundleSource(url=str(directory), folder=directory)
    url, _, ref = text.partition("#")
    if ref and (not _REF.fullmatch(ref) or ".." in ref):
        raise UsageError(f"'{ref[:100]}' can't be a branch, a tag or a commit: it takes letters, digits and . _ / + -")
    directory = _directory(url, here)
    if directory is not None:
        return BundleSource(url=directory.as_uri(), ref=ref)
    _check(url)
    return BundleSource(url=url, ref=ref)


def _check(url: str) -> None:
    shown = url[:200]
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if scheme == "file" and re.fullmatch(r"file:///\S+", url, re.IGNORECASE):
        return
    found = _REMOTE.fullmatch(url)
    if found is not None:
        if ":" in (found["user"] or ""):
            raise UsageError("the URL holds a password, which would be kept; leave it to git's credential helper")
        if Redactor().text(url) != url:
            raise UsageError("the URL holds a token, which would be kept; leave it to git's credential helper")
        return
    if scheme == "http":
        raise UsageError(f"'{shown}' would be fetched without encryption; write https://")
    if not scheme and _SCP.fullmatch(url):
        return
    if scheme or "@" in url or url.startswith("-"):
        raise UsageError(f"'{shown}' can't be fetched; expected {FORMS}")
    raise UsageError(f"there is no directory '{shown}', and it is no URL of a git repository; expected {FORMS}")


def _directory(text: str, here: Path) -> Path | None:
    if not text or "://" in text or "\0" in text:
        return None
    try:
        path = (here / Path(text).expanduser()).absolute()
        return path.resolve() if path.is_dir() else None
    except (OSError, RuntimeError):  # the home directory is unknown, or the name is invalid for files
        return None
