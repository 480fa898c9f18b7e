"""Findings of `callboard doctor`, as plain data and as text.

No model is started and no connection is opened. Of secrets, the findings have only the names and the number; the vault
is opened only if that needs neither a command nor a passphrase. Environment variables, the probes of `--sandbox`, and
files of Loki that Callboard does not use are at the end of the module.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import msgspec
import trio

from ...actors.io.directories import cache_dir, config_file
from ...actors.io.directories import config_dir as configured
from ...actors.io.environment import env_file, read_dotenv
from ...actors.io.secret_redaction import Redactor, without_logins
from ...actors.runs.finding import own_agents
from ...actors.work.sandbox.probes import Probed, probed
from ...actors.work.tools.registry import AICHAT_FILE
from ...protocol.decoding import convert
from ...protocol.environment import PREFIXES, SECRET, names_of
from ...protocol.errors import CallboardError, ConfigError
from ...protocol.mcp.config import split
from ...protocol.problems import Problem, did_you_mean, errors_in
from ...protocol.settings import Settings, read_settings, without_effect
from ...protocol.settings.read import WITHOUT_EFFECT, scalars
from ...supervisors.guardian import mechanisms
from ...supervisors.installation import install_command
from ..render.text import counted, json_object, safe, table

Found = dict[str, Any]

_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")
_ADDRESSES = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "OLLAMA_HOST", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
# Node runs .ts files without a flag since 22.18; older ones need tsx.
_INTERPRETERS = {"bash": ".sh", "python3": ".py", "node": ".ts (22.18 on)", "npx": ".ts (npx tsx)"}
_KEY_TOLD = {True: "set", False: "not set", "config.yaml": "set in config.yaml"}
_TYPESCRIPT = ("tree-sitter", "tree-sitter-typescript")


def examine(config_dir: str | None, *, with_models: bool = False) -> Found:
    """Return all findings as JSON values.

    Args:
        with_models: check every model of config.yaml too.
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
            "not_taken_over": list_unsupported(home, os.environ),
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
        "model": _default_model(settings, home),
        **({"models": _models(settings, home)} if with_models else {}),
    }


def as_text(found: Found) -> str:
    """Return the findings as text, one block per subject."""
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
        *(f"  `{key}`: accepted for compatibility with Loki, no effect yet" for key in config["without_effect"]),
        f"  agents: {', '.join(config['agents']) or 'none'}",
        *(f"  not used: {line}" for line in config["not_taken_over"]),
        "",
        "keys",
        *(f"  {name:<20} {_KEY_TOLD.get(there, there)}" for name, there in found["keys"].items()),
        *(f"  {name:<20} {value}" for name, value in found["addresses"].items()),
        f"  vault: {_vault_line(found['vault'])}",
        f"  sandbox: {_sandbox_line(found['sandbox'])}",
        "",
        "termination of processes and their child processes",
        *(f"  {line}" for line in _teardown_lines(found["teardown"], found["sandbox"])),
        "",
        "environment",
        *environment_lines(found["environment"]),
        "",
        "interpreters for scripts and tools",
        *(
            f"  {name:<8} {entry['for']:<15} {entry['path'] or 'not found'}"
            for name, entry in found["interpreters"].items()
        ),
        f"  {'tsx':<8} {'.ts':<15} {found['tsx'] or _instead_of_tsx(found)}",
        "",
        "tools in TypeScript (tools.ts)",
        f"  parser: {_reader(found['typescript'])}",
        "",
        "MCP servers",
        *_mcp_lines(found["mcp"]),
        "",
        "local model",
        f"  engine xllamacpp: {found['local']['engine'] or _not_installed('local')}",
        *(f"  {name}: {path or _how_to_pull(name)}" for name, path in found["local"]["weights"].items()),
        "",
        found["model"],
        *(f"  {line}" for each in found.get("models", ()) for line in _model_line(each).split("\n")),
    ]
    return safe("\n".join(lines)) + "\n"


def _mcp_lines(found: Found) -> list[str]:
    lines = [f"  {found['file']}: {found['health']}"]
    if not found["support"]:
        lines.append("  turned off (`mcp_server_support: false` in config.yaml)")
    if found["servers"]:
        lines.append(f"  servers: {', '.join(found['servers'])} (to try them: callboard mcp test)")
    if found["enabled"]:
        lines.append(f"  used by callboard ask: {', '.join(found['enabled'])} (enabled_mcp_servers)")
    lines += [f"  alias {name}: {meant} (mapping_mcp_servers)" for name, meant in found["aliases"].items()]
    lines += [f"  {command}: not found; needed by {', '.join(names)}" for command, names in found["missing"].items()]
    lines.append(f"  for callboard mcp serve --http: hypercorn {found['hypercorn'] or _not_installed('server')}")
    return lines


def _not_there(named_by: str) -> str:
    return "  (does not exist; optional)" if named_by == "default" else "  (does not exist)"


def _how_to_pull(model: str) -> str:
    from ...actors.work.models import weights

    name = next(known.name for known in weights.KNOWN.values() if known.id == model)
    return f"not installed (callboard models pull {name})"


def _not_installed(extra: str) -> str:
    return f"not installed ({install_command(extra)})"


def _instead_of_tsx(found: Found) -> str:
    if not found["interpreters"]["node"]["path"]:
        return "not found (npm install --global tsx)"
    return f"not found (not needed with node 22.18 or later; this is {found['node'] or 'of unknown version'})"


def _reader(packages: dict[str, str | None]) -> str:
    missing = [name for name, number in packages.items() if number is None]
    if missing:
        return f"{' and '.join(missing)} {_not_installed('typescript')}"
    return ", ".join(f"{name} {number}" for name, number in packages.items())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _packages() -> dict[str, str | None]:
    names = {
        # `packaging`, which parses these entries, is no dependency. No dependency's name ends in a digit, which this
        # would cut off.
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
    # Not `load_settings`: it raises if the file has errors, and the other findings would be lost.
    settings, problems = read_settings(text, str(file), os.environ)
    return settings, _health(problems) if problems else health or "no problems"


def _health(problems: Sequence[Problem]) -> str:
    if not problems:
        return "no problems"
    errors = errors_in(problems)
    first = (errors or problems)[0]
    return f"{counted(len(errors), 'error')}, {counted(len(problems) - len(errors), 'warning')}: {first}"


def _keys(settings: Settings) -> dict[str, bool | str]:
    """Return for each key True if the environment has it; `config.yaml` if the client's entry has one, which wins.

    A secret of the vault is named, `config.yaml: {{NAME}}`.
    """
    from ...actors.work.models.providers import signs_in

    found: dict[str, bool | str] = {name: bool(os.environ.get(name)) for name in _KEYS}
    for client in settings.clients:
        # It has a token instead of a key; `callboard auth status` shows it.
        if signs_in(client):
            continue
        name = re.sub(r"[^A-Z0-9]", "_", (client.name or client.type).upper()) + "_API_KEY"
        named = SECRET.search(client.api_key)
        of_file = f"config.yaml: {named[0]}" if named is not None else "config.yaml"
        found[name] = of_file if client.api_key else bool(os.environ.get(name))
    return found


def _vault(home: Path, settings: Settings) -> Found:
    """Return the vault's place, and its number of secrets if it opens without a command or a passphrase."""
    from ...actors.io.vault.vault import LOKIS_FILE, Vault

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
    """Return the sandbox profile and its backend; `backend` tests it with a process."""
    from ...actors.work.sandbox.backends import backend

    wanted = settings.sandbox if isinstance(settings.sandbox, str) else settings.sandbox.profile or "workspace"
    way = backend()
    return {"profile": wanted, "backend": way.kind, "landlock_abi": way.abi, "why_not": list(way.why_not)}


def _sandbox_line(found: Found) -> str:
    why = f" ({'; '.join(found['why_not'])})" if found["why_not"] else ""
    if found["profile"] == "off":
        return f"off; 'workspace' would be enforced by {found['backend']}{why}"
    if found["backend"] == "none":
        return (
            f"'{found['profile']}', which nothing on this machine can enforce: Callboard asks before each process{why}"
        )
    hosts = "" if found["backend"] == "bubblewrap" else "; it can't restrict hosts"
    return f"'{found['profile']}' by {found['backend']}{hosts}{why}"


def _teardown_lines(found: Found, sandbox: Found) -> list[str]:
    """Return a line for each mechanism; docs/kernel.md has a table of them."""
    orphans = {True: "a reaper for each process adopts them", False: "not found: this kernel has no child subreapers"}
    listed = {True: "read from the kernel's lists of children", False: "found by reading all of /proc"}
    signals = {True: "sent by pidfd", False: "sent by pid, after a check of its start time"}
    namespaced = sandbox["backend"] == "bubblewrap" and sandbox["profile"] != "off"
    namespace = {
        True: "sandboxed processes end with their pid namespace",
        False: "processes of a killed reaper continue",
    }
    return [
        f"orphans          {orphans[found['subreaper']]}",
        f"descendants      {listed[found['children']]}",
        f"signals          {signals[found['pidfd']]}",
        f"kill -9 of all   {namespace[namespaced]}",
    ]


def _vault_line(found: Found) -> str:
    if found["command"]:
        return f"`{found['command']}`"
    if found["error"]:
        return str(found["error"])
    if found["exists"]:
        count = "opened on demand" if found["secrets"] is None else counted(found["secrets"], "secret")
        return f"{found['file']}, {count}"
    if found["lokis"]:
        return f"{found['lokis']} can be read only by Loki; to copy its secrets: callboard vault import --help"
    if found["pyrage"] is None:
        return f"none; it needs pyrage, {_not_installed('vault')}"
    return "none (to make one: callboard vault add NAME)"


def _node_version(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        told = subprocess.run([path, "--version"], capture_output=True, timeout=5, check=False, text=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        # ValueError: the output is not text (UnicodeDecodeError).
        return None
    return told.stdout.strip() or None


def _mcp(home: Path, settings: Settings) -> Found:
    from ...actors.work.mcp.files import load_mcp
    from .mcp import lacks_program

    config = load_mcp(home)
    missing: dict[str, list[str]] = {}
    for name in config.names:
        if lacks_program(config.servers[name]):
            missing.setdefault(config.servers[name].command, []).append(name)
    there = Path(config.file).exists()
    return {
        "file": config.file,
        "health": _health(config.problems) if there else "none (to write one: callboard mcp init)",
        "support": settings.mcp_server_support,
        "servers": list(config.names),
        "enabled": split(settings.enabled_mcp_servers),
        "aliases": settings.mapping_mcp_servers,
        "missing": missing,
        "hypercorn": _version("hypercorn"),
    }


def _local() -> Found:
    from ...actors.work.models import weights

    here = {entry.model: entry.path for entry in weights.installed(os.environ)}
    known = {known.id: here.get(known.id) for known in weights.KNOWN.values()}
    return {"engine": _version("xllamacpp"), "weights": known | here}


def _models(settings: Settings, home: Path) -> list[Any]:
    import msgspec

    from .models import checked_models

    return [msgspec.to_builtins(each) for each in checked_models((), settings, home)]


def _model_line(found: Found) -> str:

    from ...actors.runs.model_checks import Checked
    from .models import as_check_text

    return as_check_text(convert(found, Checked))


def _default_model(settings: Settings, home: Path) -> str:
    """Return the default model, or the reason why it can't answer: no key, no engine, no weights."""
    from ...actors.work.models.catalog import ModelCatalog
    from .models import checked_models

    try:
        choice = ModelCatalog(settings, os.environ).choice()
        found = checked_models((choice.model,), settings, home)
    except CallboardError as error:
        return f"model: none ({error})"
    reasons = [each.failed.message for each in found if each.failed is not None]
    if len(reasons) < len(found):  # one of several models can answer
        return str(choice)
    return f"model: none can answer. {choice.model} ({choice.why}): {reasons[0]}\n  to choose another: callboard setup"


PLACES = ("config_dir", "config_file", "env_file", *(f"{kind}_dir" for kind in ("roles", "macros", "sessions", "rags")))
"""Names of settings that hold paths."""

OTHER_VARIABLES = {
    **dict.fromkeys((*PLACES, "functions_dir", "log_level", "log_filter", "log_path", "log_file"), ""),
    **dict.fromkeys(("shell", "provider", "platform", "embeddings_retry_limit", "messages_file", "serve_addr"), ""),
}
"""Settings that exist only as variables, not in `config.yaml`; with a reason if they have no effect."""

_OURS_ALONE = ("CALLBOARD_LOG", "CALLBOARD_URL", "CALLBOARD_TTY")
_SECRETS = ("CALLBOARD_TOKEN", "CALLBOARD_CLUSTER", "CALLBOARD_WORKER_KEY")
_OUR_ADDRESSES = ("CALLBOARD_WEATHER_URL", "CALLBOARD_WIKIPEDIA_URL", "CALLBOARD_ARXIV_URL", "CALLBOARD_WEB_SEARCH_URL")


def examine_environment(home: Path, environ: Mapping[str, str] = os.environ) -> Found:
    """Return the user's `.env` file, the names set by it, and each variable of Callboard's or Loki's.

    A variable has its `value` (None for one that may hold a secret), and a `note` with a reason if it has no effect.
    """
    file = env_file(home, environ)
    try:
        of_file, error = read_dotenv(file), None
    except ConfigError as wrong:
        of_file, error = {}, str(wrong)
    return {
        "file": str(file) if file.exists() else None,
        "error": error,
        # The file sets only variables that were missing. If the values differ, the variable came from the environment
        # itself.
        "from_file": sorted(name for name, value in of_file.items() if environ.get(name) == value),
        "variables": _variables(environ),
    }


def environment_lines(found: Found) -> list[str]:
    """Return the lines about the environment for the text form."""
    lines = []
    if found["error"]:
        lines.append(f"  {found['error']}")
    elif found["file"]:
        names = ", ".join(found["from_file"]) or "only variables that are already set"
        lines.append(f"  {found['file']}: {names}")
    for name, entry in found["variables"].items():
        value = "set" if entry["value"] is None else entry["value"]
        lines.append(f"  {name} {value}" + (f"  ({entry['note']})" if entry["note"] else ""))
    return lines or ["  none of CALLBOARD_... and LOKI_... is set, and there is no .env"]


def _variables(environ: Mapping[str, str]) -> dict[str, Found]:
    keys = {field.name: WITHOUT_EFFECT.get(field.name, "") for _, field in scalars()} | OTHER_VARIABLES
    known = {name: key for key in keys for name in names_of(key)}
    ours = (*_OURS_ALONE, *_SECRETS, *_OUR_ADDRESSES)
    found: dict[str, Found] = {}
    for name in sorted(environ):
        if not name.startswith(PREFIXES) or not environ[name]:
            continue
        key = known.get(name)
        if key is not None:
            first = next(each for each in names_of(key) if environ.get(each))
            note = f"{first} overrides it" if first != name else keys[key] and f"no effect yet: {keys[key]}"
            found[name] = {"value": _without_secrets(environ[name]), "note": note}
        # A patch of requests (`CALLBOARD_PATCH_...`) may add headers with keys, so its value is not shown.
        elif name in ours or name.partition("_")[2].startswith("PATCH_"):
            shown = name not in _SECRETS and name in ours
            found[name] = {"value": _without_secrets(environ[name]) if shown else None, "note": ""}
        # Not for LOKI_: an unknown one may be a variable that only Loki reads.
        elif name.startswith("CALLBOARD_"):
            note = did_you_mean(name, known) or "no effect: no setting has this name"
            found[name] = {"value": None, "note": note}
    return found


def _without_secrets(value: str) -> str:
    """Remove anything that looks like a secret: a URL may contain a password or a key."""
    return Redactor().text(without_logins(value))


_HOLDS = {True: "yes", False: "NO", None: "not enforced on this machine (docs/sandbox.md)"}
_INSTALL_BUBBLEWRAP = (
    "Install bubblewrap (Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap; Arch: pacman -S "
    "bubblewrap), or use Linux 5.13 or newer with Landlock. In a container, bubblewrap needs user namespaces"
)


def probe_sandbox(*, as_json: bool) -> int:
    """Run the probes of the sandbox and print the findings; return 1 if one fails or no backend works, else 0."""
    found = trio.run(probed)
    if as_json:
        sys.stdout.write(
            json_object(holds=found.holds, findings=msgspec.to_builtins(found.findings), missing=dict(found.missing))
        )
    else:
        sys.stdout.write(_probes_as_text(found))
    return 0 if found.holds else 1


def _probes_as_text(found: Probed) -> str:
    lines: list[str] = []
    for kind in dict.fromkeys(each.backend for each in found.findings):
        rows = [
            (each.tried, each.expected, each.found, _HOLDS[each.holds])
            for each in found.findings
            if each.backend == kind
        ]
        who = "root" if os.geteuid() == 0 else "an ordinary user"
        lines += [f"{kind}, as {who}", table([("TRIED", "EXPECTED", "FOUND", "HOLDS"), *rows])]
    lines += [f"{kind} does not work here: {why}" for kind, why in found.missing.items()]
    if not found.findings:
        lines.append(_INSTALL_BUBBLEWRAP)
    failed = sum(each.holds is False for each in found.findings)
    lines.append(f"{len(found.findings)} findings, {failed} not as expected")
    return "\n".join(lines) + "\n"


_UNUSED = "Callboard runs tools from their own files; you can delete it"


def list_unsupported(home: Path, environ: Mapping[str, str]) -> list[str]:
    """Return a line for each file of a Loki config directory that Callboard does not use, with what to do about it.

    Everything else is used as it is: `config.yaml`, agents, roles, macros, tools, `mcp.json`, `.env`, sessions and
    knowledge bases (the last two are copied when they are first opened).
    """
    lines = []
    if (home / "vault.yml").is_file():
        lines.append(
            "vault.yml: Loki's encrypted secrets, which only Loki can read; to copy them: callboard vault import --help"
        )
    prices = home / "models-override.yaml"
    if prices.is_file():
        lines.append(
            f"{prices.name}: model prices and limits that Loki downloaded; to use them:"
            f" callboard models update --from {prices}"
        )
    lines += [
        f"functions/{name}: programs that Loki generated for its tools; {_UNUSED}"
        for name in ("bin", "scripts")
        if (home / "functions" / name).is_dir()
    ]
    if built := sorted(path.parent.name for path in home.glob("agents/*/bin") if path.is_dir()):
        lines.append(f"agents/*/bin ({', '.join(built)}): programs that Loki generated for its tools; {_UNUSED}")
    for file in sorted((cache_dir(environ).parent / "loki" / "oauth").glob("*_oauth_tokens.json")):
        client = file.name.removesuffix("_oauth_tokens.json")
        lines.append(f"{file}: tokens of a sign-in by Loki; to sign in again: callboard auth login {client}")
    ours, lokis = home / "mcp.json", home / "functions" / "mcp.json"
    # Nothing is lost of a server that both files have, so it is not reported.
    if ours.is_file() and lokis.is_file() and (only := sorted(_server_names(lokis) - _server_names(ours))):
        lines.append(
            f"functions/mcp.json: ignored, because {ours} exists; to use these servers, copy them into it:"
            f" {', '.join(only)}"
        )
    if named := sorted(path.parent.name for path in home.glob(f"functions/agents/*/{AICHAT_FILE}")):
        lines.append(
            f"functions/agents ({', '.join(named)}): agents of aichat; to copy them into agents/:"
            f" callboard install {home / 'functions'} --filter agents"
        )
    return lines


def _server_names(file: Path) -> set[str]:
    """Return the servers of a file; none if it can't be read, which `callboard mcp list` reports."""
    try:
        servers = json.loads(file.read_bytes()).get("mcpServers", {})
    except (OSError, ValueError, AttributeError):
        return set()
    return {*servers} if isinstance(servers, dict) else set()
