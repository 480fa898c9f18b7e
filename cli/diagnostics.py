"""What `callboard doctor` finds out: plain data, and the same as text.

Nothing here starts a model or opens a connection; secrets are looked at only to see whether they are there.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from ..actors.io.directories import config_dir as configured
from ..actors.io.directories import config_file
from ..actors.io.redact import without_logins
from ..actors.runs.finding import own_agents
from ..protocol.decoding import convert
from ..protocol.errors import CallboardError
from ..protocol.mcp.config import split
from ..protocol.problems import Problem, errors_in
from ..protocol.references import SECRET
from ..protocol.settings import Settings, read_settings, without_effect
from ..supervisors.guardian import mechanisms
from . import environment_report
from .environment_report import examine_environment
from .leftovers import leftovers
from .render.text import counted, safe

Found = dict[str, Any]

_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")
_ADDRESSES = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "OLLAMA_HOST", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
_INTERPRETERS = {"bash": ".sh", "python3": ".py", "node": ".ts (22.18 on)", "npx": ".ts (npx tsx)"}
_KEY_TOLD = {True: "set", False: "not set", "config.yaml": "set in config.yaml"}
_NO_SERVER_EXTRA = "not installed (pip install 'callboard[server]')"
_TYPESCRIPT = ("tree-sitter", "tree-sitter-typescript")


def examine(config_dir: str | None, *, with_models: bool = False) -> Found:
    """Everything `doctor` knows, as JSON values.

    Args:
        with_models: look at every model of config.yaml, too.
    """
    home, named_by = configured(config_dir, os.environ)
    settings, health = _read_settings(config_file(home))
    return {
        "callboard": _version("callboard"),
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": platform.platform(),
        "packages": _packages(),
        "config": {
            "directory": str(home),
            "named_by": named_by,
            "exists": home.is_dir(),
            "settings": health,
            "agents": own_agents(home),
            "without_effect": [problem.key or "" for problem in without_effect(settings)],
            "not_taken_over": leftovers(home, os.environ),
        },
        "keys": _keys(settings),
        "vault": _vault(home, settings),
        "sandbox": _sandbox(settings),
        "teardown": mechanisms(),
        "environment": examine_environment(home),
        "addresses": {name: without_logins(os.environ[name]) for name in _ADDRESSES if os.environ.get(name)},
        "interpreters": {name: {"for": what, "path": shutil.which(name)} for name, what in _INTERPRETERS.items()},
        "tsx": shutil.which("tsx"),
        "node": _node_version(shutil.which("node")),
        "typescript": {name: _version(name) for name in _TYPESCRIPT},
        "mcp": _mcp(home, settings),
        "local": _local(),
        "model": _default_model(settings),
        **({"models": _models(settings, home)} if with_models else {}),
    }


def as_text(found: Found) -> str:
    """The findings for people: one block per subject."""
    config = found["config"]
    lines = [
        f"callboard {found['callboard']}, Python {found['python']['version']} ({found['python']['executable']})",
        found["platform"],
        "",
        "packages",
        *(f"  {name:<16} {number or 'not installed'}" for name, number in found["packages"].items()),
        "",
        f"config directory (from {config['named_by']})",
        f"  {config['directory']}{'' if config['exists'] else _not_there(config['named_by'])}",
        f"  config.yaml: {config['settings']}",
        *(f"  `{key}`: accepted for Loki's sake, no effect yet" for key in config["without_effect"]),
        f"  agents: {', '.join(config['agents']) or 'none'}",
        *(f"  not taken over from Loki: {line}" for line in config["not_taken_over"]),
        "",
        "keys",
        *(f"  {name:<20} {_KEY_TOLD.get(there, there)}" for name, there in found["keys"].items()),
        *(f"  {name:<20} {value}" for name, value in found["addresses"].items()),
        f"  vault: {_told_of_vault(found['vault'])}",
        f"  sandbox: {_told_of_sandbox(found['sandbox'])}",
        "",
        "how processes are ended, with all that they have started",
        *(f"  {line}" for line in _told_of_teardown(found["teardown"], found["sandbox"])),
        "",
        "environment",
        *environment_report.told(found["environment"]),
        "",
        "interpreters for scripts and tools",
        *(
            f"  {name:<8} {entry['for']:<15} {entry['path'] or 'not found'}"
            for name, entry in found["interpreters"].items()
        ),
        f"  {'tsx':<8} {'.ts':<15} {found['tsx'] or _instead_of_tsx(found)}",
        "",
        "tools in TypeScript (tools.ts)",
        f"  to read them: {_reader(found['typescript'])}",
        "",
        "MCP servers",
        *_told_of_mcp(found["mcp"]),
        "",
        "local model",
        f"  engine xllamacpp: {found['local']['engine'] or 'not installed (pip install callboard[local])'}",
        *(f"  {name}: {path or _how_to_pull(name)}" for name, path in found["local"]["weights"].items()),
        "",
        found["model"],
        *(f"  {line}" for each in found.get("models", ()) for line in _told_of_model(each).split("\n")),
    ]
    return safe("\n".join(lines)) + "\n"


def _told_of_mcp(found: Found) -> list[str]:
    lines = [f"  {found['file']}: {found['health']}"]
    if not found["support"]:
        lines.append("  turned off (`mcp_server_support: false` in config.yaml)")
    if found["servers"]:
        lines.append(f"  servers: {', '.join(found['servers'])} (callboard mcp test tries them)")
    if found["enabled"]:
        lines.append(f"  of callboard ask: {', '.join(found['enabled'])} (enabled_mcp_servers)")
    lines += [f"  alias {name}: {meant} (mapping_mcp_servers)" for name, meant in found["aliases"].items()]
    lines += [f"  {command}: not found; needed by {', '.join(names)}" for command, names in found["missing"].items()]
    lines.append(f"  to be one over HTTP: hypercorn {found['hypercorn'] or _NO_SERVER_EXTRA}")
    return lines


def _not_there(named_by: str) -> str:
    return "  (not there, which is fine)" if named_by == "default" else "  (not there)"


def _how_to_pull(model: str) -> str:
    from ..actors.work.models import weights

    name = next(known.name for known in weights.KNOWN.values() if known.id == model)
    return f"not here (callboard models pull {name})"


def _instead_of_tsx(found: Found) -> str:
    if not found["interpreters"]["node"]["path"]:
        return "not found (npm install --global tsx)"
    return f"not found (node 22.18 and later does without; this is {found['node'] or 'of unknown version'})"


def _reader(packages: dict[str, str | None]) -> str:
    missing = [name for name, number in packages.items() if number is None]
    if missing:
        return f"{' and '.join(missing)} not installed (pip install 'callboard[typescript]')"
    return ", ".join(f"{name} {number}" for name, number in packages.items())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _packages() -> dict[str, str | None]:
    names = {
        entry.split(";")[0].split("[")[0].rstrip("<>=!~.,0123456789 ")
        for entry in requires("callboard") or ()
        if "extra ==" not in entry
    }
    return {name: _version(name) for name in sorted(names, key=str.lower)}


def _read_settings(file: Path) -> tuple[Settings, str]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        text, health = "", "not there"
    except (OSError, UnicodeDecodeError) as error:
        text, health = "", f"can't be read: {error}"
    else:
        health = ""
    settings, problems = read_settings(text, str(file), os.environ)
    return settings, _health(problems) if problems else health or "no problems"


def _health(problems: Sequence[Problem]) -> str:
    if not problems:
        return "no problems"
    errors = errors_in(problems)
    first = (errors or problems)[0]
    return f"{counted(len(errors), 'error')}, {counted(len(problems) - len(errors), 'warning')}: {first}"


def _keys(settings: Settings) -> dict[str, bool | str]:
    """Whether each key is set in the environment; `config.yaml` for one that a client has there, which comes first.

    A secret of the vault is named, `config.yaml: {{NAME}}`.
    """
    from ..actors.work.models.providers import signs_in

    found: dict[str, bool | str] = {name: bool(os.environ.get(name)) for name in _KEYS}
    for client in settings.clients:
        if signs_in(client):
            continue
        name = re.sub(r"[^A-Z0-9]", "_", (client.name or client.type).upper()) + "_API_KEY"
        named = SECRET.search(client.api_key)
        of_file = f"config.yaml: {named[0]}" if named is not None else "config.yaml"
        found[name] = of_file if client.api_key else bool(os.environ.get(name))
    return found


def _vault(home: Path, settings: Settings) -> Found:
    """Where the vault is and whether it can be opened. No command is run, and nobody is asked for a passphrase."""
    from ..actors.io.vault.vault import LOKIS_FILE, Vault

    vault = Vault(settings, home, os.environ)
    lokis = home / LOKIS_FILE
    found: Found = {
        "file": None if vault.file is None else str(vault.file.path),
        "command": settings.vault.command or None,
        "exists": vault.is_there,
        "secrets": None,
        "error": None,
        "pyrage": _version("pyrage"),
        "lokis": str(lokis) if lokis.exists() else None,
    }
    if vault.file is not None and vault.is_there and vault.is_quick:
        try:
            found["secrets"] = len(vault.file.read())
        except CallboardError as error:
            found["error"] = str(error)
    return found


def _sandbox(settings: Settings) -> Found:
    """What processes of agents are held to, and by what; the latter is tried with a process of our own."""
    from ..actors.work.sandbox.backends import backend

    wanted = settings.sandbox if isinstance(settings.sandbox, str) else settings.sandbox.profile or "workspace"
    way = backend()
    return {"profile": wanted, "backend": way.kind, "landlock_abi": way.abi, "why_not": list(way.why_not)}


def _told_of_sandbox(found: Found) -> str:
    why = f" ({'; '.join(found['why_not'])})" if found["why_not"] else ""
    if found["profile"] == "off":
        return f"off; 'workspace' would be held by {found['backend']}{why}"
    if found["backend"] == "none":
        return f"'{found['profile']}', and nothing here can hold processes to it: you are asked about each{why}"
    hosts = "" if found["backend"] == "bubblewrap" else "; no lists of hosts"
    return f"'{found['profile']}' by {found['backend']}{hosts}{why}"


def _told_of_teardown(found: Found, sandbox: Found) -> list[str]:
    """One line for each mechanism: docs/kernel.md has a table of them."""
    orphans = {True: "a reaper for each process adopts them", False: "not found: this kernel has no child subreapers"}
    listed = {True: "read from the kernel's lists of children", False: "found by reading all of /proc"}
    signals = {True: "sent by pidfd", False: "sent by pid, after a look at its start time"}
    namespaced = sandbox["backend"] == "bubblewrap" and sandbox["profile"] != "off"
    namespace = {
        True: "sandboxed processes end with their pid namespace",
        False: "a killed reaper leaves its processes",
    }
    return [
        f"orphans          {orphans[found['subreaper']]}",
        f"descendants      {listed[found['children']]}",
        f"signals          {signals[found['pidfd']]}",
        f"kill -9 of all   {namespace[namespaced]}",
    ]


def _told_of_vault(found: Found) -> str:
    if found["command"]:
        return f"`{found['command']}`"
    if found["error"]:
        return str(found["error"])
    if found["exists"]:
        count = "opened when it is needed" if found["secrets"] is None else counted(found["secrets"], "secret")
        return f"{found['file']}, {count}"
    if found["lokis"]:
        return f"{found['lokis']} is Loki's own, which can't be read: callboard vault import --help"
    if found["pyrage"] is None:
        return "none; an encrypted one needs pyrage (pip install 'callboard[vault]')"
    return "none (callboard vault add NAME makes one)"


def _node_version(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        told = subprocess.run([path, "--version"], capture_output=True, timeout=5, check=False, text=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return told.stdout.strip() or None


def _mcp(home: Path, settings: Settings) -> Found:
    from ..actors.work.mcp.files import load_mcp
    from .mcp_servers import lacks_program

    config = load_mcp(home)
    missing: dict[str, list[str]] = {}
    for name in config.names:
        if lacks_program(config.servers[name]):
            missing.setdefault(config.servers[name].command, []).append(name)
    there = Path(config.file).exists()
    return {
        "file": config.file,
        "health": _health(config.problems) if there else "not there (callboard mcp init writes one)",
        "support": settings.mcp_server_support,
        "servers": list(config.names),
        "enabled": split(settings.enabled_mcp_servers),
        "aliases": settings.mapping_mcp_servers,
        "missing": missing,
        "hypercorn": _version("hypercorn"),
    }


def _local() -> Found:
    from ..actors.work.models import weights

    here = {entry.model: entry.path for entry in weights.installed(os.environ)}
    known = {known.id: here.get(known.id) for known in weights.KNOWN.values()}
    return {"engine": _version("xllamacpp"), "weights": known | here}


def _models(settings: Settings, home: Path) -> list[Any]:
    import msgspec

    from .model_checks import checked

    return [msgspec.to_builtins(each) for each in checked((), settings, home)]


def _told_of_model(found: Found) -> str:

    from ..actors.runs.model_checks import Checked
    from .model_checks import as_text

    return as_text(convert(found, Checked))


def _default_model(settings: Settings) -> str:
    from ..actors.work.models.catalog import Catalog

    try:
        return str(Catalog(settings, os.environ).choice())
    except CallboardError as error:
        return f"model: none ({error})"
