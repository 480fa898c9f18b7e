"""Files and settings of a Loki config directory that Callboard does not use, with what to do about each.

`callboard doctor` lists them. Everything else there is used as it is: `config.yaml`, agents, roles, macros, tools,
`mcp.json`, `.env`, sessions and knowledge bases (the last two are copied when they are first opened).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ...actors.io.directories import cache_dir
from ...actors.work.tools.registry import AICHAT_FILE

_UNUSED = "Callboard runs tools from their own files; you can delete it"


def list_unsupported(home: Path, environ: Mapping[str, str]) -> list[str]:
    """Return a line for each unused file or setting; none for a directory that Loki has never used."""
    return [line for look in _LOOKS for line in look(home, environ)]


def _vault(home: Path, _environ: Mapping[str, str]) -> Iterator[str]:
    if (home / "vault.yml").is_file():
        yield "vault.yml: encrypted by Loki, and can't be read; see callboard vault import --help"


def _models(home: Path, _environ: Mapping[str, str]) -> Iterator[str]:
    file = home / "models-override.yaml"
    if file.is_file():
        yield f"{file.name}: prices and limits that Loki fetched; callboard models update --from {file}"


def _built(home: Path, _environ: Mapping[str, str]) -> Iterator[str]:
    for name in ("bin", "scripts"):
        if (home / "functions" / name).is_dir():
            yield f"functions/{name}: Loki's programs for tools; {_UNUSED}"
    built = sorted(path.parent.name for path in home.glob("agents/*/bin") if path.is_dir())
    if built:
        yield f"agents/*/bin ({', '.join(built)}): Loki's programs for tools; {_UNUSED}"


def _sign_ins(_home: Path, environ: Mapping[str, str]) -> Iterator[str]:
    oauth = cache_dir(environ).parent / "loki" / "oauth"
    for file in sorted(oauth.glob("*_oauth_tokens.json")):
        client = file.name.removesuffix("_oauth_tokens.json")
        yield f"{file}: tokens of a sign-in by Loki; sign in again: callboard auth login {client}"


def _servers(home: Path, _environ: Mapping[str, str]) -> Iterator[str]:
    ours, lokis = home / "mcp.json", home / "functions" / "mcp.json"
    if ours.is_file() and lokis.is_file():
        # Nothing is lost of a server that both files have, so it is not reported.
        only = sorted(_names(lokis) - _names(ours))
        if only:
            names = ", ".join(only)
            yield (
                "functions/mcp.json: not read, because mcp.json of the config directory exists; "
                f"only functions/mcp.json has {names}"
            )


def _names(file: Path) -> set[str]:
    """Return the servers of a file; none if it can't be read, which `callboard mcp list` reports."""
    try:
        servers = json.loads(file.read_bytes()).get("mcpServers", {})
    except (OSError, ValueError, AttributeError):
        return set()
    return {*servers} if isinstance(servers, dict) else set()


def _agents_of_aichat(home: Path, _environ: Mapping[str, str]) -> Iterator[str]:
    named = sorted(path.parent.name for path in home.glob(f"functions/agents/*/{AICHAT_FILE}"))
    if named:
        yield (
            f"functions/agents ({', '.join(named)}): agents of aichat;"
            f" callboard install {home / 'functions'} --filter agents copies them into agents/"
        )


_LOOKS: tuple[Callable[[Path, Mapping[str, str]], Iterator[str]], ...] = (
    *(_vault, _models, _built, _sign_ins, _servers),
    _agents_of_aichat,
)
