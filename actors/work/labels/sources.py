"""What the result of a call carries: by the tool, by its path, by the command. Never by what stands in the result.

    untrusted   pages and searches; servers, unless marked `trusted`; knowledge bases; files of a directory that its
                user does not trust; what a command gets from a network
    private     files outside of the workspace; secret files in it; servers marked `private`

A call that has failed carries the same: its error may quote what it has read.
"""

from __future__ import annotations

import os
import re

from ..tools.shell_line import Simple, commands_of
from ..tools.tool import Arguments, Tool
from .labels import NOTHING, Labels
from .setting import Setting

WEB = re.compile(r"(fetch_url|web_search|search)_\w+")
"""Our own tools that read what strangers write."""

KNOWLEDGE = "knowledge__search"

NETWORK = frozenset(
    (
        *(
            "curl",
            "wget",
            "http",
            "https",
            "xh",
            "aria2c",
            "lynx",
            "w3m",
            "links",
            "ftp",
            "sftp",
            "scp",
            "rsync",
            "ssh",
        ),
        *("nc", "ncat", "netcat", "socat", "telnet", "gh", "glab", "hub", "jira", "aws", "gcloud", "az", "kubectl"),
        *("mail", "sendmail", "mutt", "msmtp", "dig", "nslookup", "host", "ping"),
    )
)
"""Programs that talk to others."""

_GIT = frozenset(("clone", "fetch", "pull", "push", "ls-remote", "remote", "submodule", "send-email", "request-pull"))
_PACKAGES = frozenset(("npm", "pnpm", "yarn", "pip", "pip3", "uv", "cargo", "gem", "go", "docker", "podman"))
_FETCHES = frozenset(("install", "add", "publish", "push", "pull", "login", "upload", "get", "run", "build"))
_ENV_FILE = re.compile(
    r"\.env(\..+)?|\.envrc|.*\.pem|.*\.key|id_(rsa|ed25519|ecdsa)|credentials(\.json)?|secrets?(\..+)?"
)
_EXAMPLE = re.compile(r".*\.(example|sample|template|dist)")


def carries(tool: Tool, arguments: Arguments, setting: Setting) -> Labels:
    """What the result of a call carries."""
    found = NOTHING
    if "outside" in tool.labels or WEB.fullmatch(tool.name) or tool.name == KNOWLEDGE:
        found = found.plus(Labels(untrusted=(_way(tool, arguments),)))
    if "private" in tool.labels:
        found = found.plus(Labels(private=(_way(tool, arguments),)))
    if tool.subject == "path" and tool.reads:
        path = arguments.get("path") or "."
        if isinstance(path, str):
            found = found.plus(_of_path(path, tool, setting))
    if tool.shell:
        found = found.plus(_of_command(str(arguments.get(tool.subject, "")), tool, setting))
    return found


def talks_to_others(command: Simple) -> bool:
    """Whether a command reaches a network by its nature."""
    program, words = command.program, command.words
    verb = next((word for word in words[1:] if not word.startswith("-")), "")
    if program == "git":
        return any(word in _GIT for word in words[1:4])
    return program in NETWORK or (program in _PACKAGES and verb in _FETCHES)


def is_private(path: str, setting: Setting) -> bool:
    """Whether a file is the user's own business: outside of the workspace, or a secret in it."""
    real = os.path.realpath(setting.here / os.path.expanduser(path))
    if not any(real == root or real.startswith(f"{root.rstrip('/')}/") for root in setting.roots):
        return True
    name = os.path.basename(real)
    return bool(_ENV_FILE.fullmatch(name)) and not _EXAMPLE.fullmatch(name)


def _of_path(path: str, tool: Tool, setting: Setting) -> Labels:
    if is_private(path, setting):
        return Labels(private=(f"{tool.name} {path}",))
    return NOTHING if setting.is_trusted else Labels(untrusted=(f"{tool.name} {path}",))


def _of_command(line: str, tool: Tool, setting: Setting) -> Labels:
    found = NOTHING
    for command in (part for each in commands_of(line) or () for part in each.all()):
        if talks_to_others(command) and setting.has_network(tool.name):
            found = found.plus(Labels(untrusted=(command.text[:80],)))
        for word in command.words[1:]:
            if _is_path(word) and is_private(word, setting) and os.path.lexists(os.path.expanduser(word)):
                found = found.plus(Labels(private=(command.text[:80],)))
    if not setting.is_trusted and not found.untrusted:
        found = found.plus(Labels(untrusted=(f"{tool.name}, in a directory that is not trusted",)))
    return found


def _is_path(word: str) -> bool:
    return word.startswith(("/", "~", "..")) or "/" in word or bool(_ENV_FILE.fullmatch(word))


def _way(tool: Tool, arguments: Arguments) -> str:
    value = arguments.get(tool.subject) if tool.subject else next(iter(arguments.values()), "")
    return f"{tool.name} {str(value)[:100]}".strip()
