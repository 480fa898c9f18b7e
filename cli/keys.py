"""`callboard keys`: keys for remote callers of a server."""

from __future__ import annotations

import sys

import click

_NO_SCOPES = ("read:runs", "write:runs", "run:agents", "read:agents", "answer:questions")
"""The default scopes of a key: agents by name, and the runs that it has started."""


@click.group("keys", short_help="Make keys for callers of `callboard serve`.")
def command() -> None:
    """Makes keys for callers of `callboard serve`.

    config.yaml has a key's hash only; the key itself is shown once and kept nowhere.
    """


@command.command("new", short_help="Make a key: shows it once, and what config.yaml needs.")
@click.argument("subject")
@click.option("--scope", "-s", "scopes", multiple=True, help="What it may be used for; may be repeated. '*' for all.")
def new(subject: str, scopes: tuple[str, ...]) -> int:
    """Makes a key for SUBJECT. The key goes to stdout, the lines for config.yaml to stderr.

    \b
    callboard keys new alice -s run:agents -s read:runs > alice.key
    """
    from ..actors.front.access.keys import new_key
    from ..protocol.control.caller import SCOPES
    from ..protocol.errors import UsageError
    from ..protocol.problems import did_you_mean

    if not subject or not subject.isprintable() or subject == "local":
        raise UsageError(
            f"{subject!r} can't be a subject: a name was expected, and 'local' is the user who runs the server"
        )
    for scope in scopes:
        if scope != "*" and scope not in SCOPES:
            hint = did_you_mean(scope, SCOPES) or f"there are {', '.join(SCOPES)} and '*'"
            raise UsageError(f"there is no scope '{scope}'; {hint}")
    key, id = new_key()
    entry = _entry(subject, id, _hash(key), scopes or _NO_SCOPES)
    sys.stderr.write(f"# config.yaml, under api: auth: keys: (then: kill -HUP the server)\n{entry}\n")
    sys.stderr.write("# the key itself is shown this once:\n")
    sys.stderr.flush()
    sys.stdout.write(key + "\n")
    return 0


@command.command("hash", short_help="The hash of a key that was made elsewhere.")
def hash() -> int:
    """Reads a key from stdin (one line, not shown on a terminal) and prints the hash for config.yaml."""
    from ..protocol.errors import UsageError

    terminal = sys.stdin.isatty()
    key = click.prompt("key", hide_input=True, err=True) if terminal else sys.stdin.readline().rstrip("\n")
    if len(key) < 16:
        raise UsageError("a key has at least 16 characters: it is tried by machines, not by people")
    sys.stdout.write(_hash(key) + "\n")
    return 0


def _hash(key: str) -> str:
    from ..actors.front.access.keys import hashed
    from ..protocol.errors import ConfigError

    try:
        return hashed(key)
    except ImportError as error:
        raise ConfigError(f"hashing keys needs {error.name}: pip install 'callboard[server]'") from None


def _entry(subject: str, id: str, hash: str, scopes: tuple[str, ...]) -> str:
    import json

    listed = ", ".join(json.dumps(scope) for scope in scopes)
    quoted = json.dumps(subject, ensure_ascii=False)
    return f"- subject: {quoted}\n  id: {json.dumps(id)}\n  key_hash: {json.dumps(hash)}\n  scopes: [{listed}]"
