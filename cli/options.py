"""Click options shared by commands, groups that list by default, and shell completion of option values."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..actors.io.directories import config_dir as configured
from ..actors.io.directories import journal_dir, state_dir, user_folder
from ..actors.work.library import AGENTS, MACROS, ROLES
from ..protocol.interrupted_calls import ON_UNKNOWN
from .settings_warnings import begin_with

strict = click.option("--strict", is_flag=True, help="Treat unknown keys in files as errors, not as warnings.")
config_dir = click.option(
    "-C",
    "--config-dir",
    metavar="DIR",
    callback=begin_with,
    is_eager=True,  # later values are completed and checked according to the settings
    help="Directory of agents and config.yaml [default: $CALLBOARD_CONFIG_DIR or ~/.config/callboard].",
)
text_or_json = click.option(
    "-o",
    "--output",
    "as_json",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    callback=lambda _ctx, _parameter, value: value == "json",
    help="Form of the output on stdout.",
)


def above_zero(unit: str, kind: type[int | float]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback for an option with a positive number; `kind` is `int` for whole numbers.

    Infinity and NaN are refused: no limit is expressed by leaving the option out.
    """

    def read(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> int | float | None:
        if value is None:
            return None
        try:
            number = kind(value)
        except ValueError:
            number = 0
        # NaN fails both comparisons.
        if not 0 < number < math.inf:
            whole = "whole number" if kind is int else "number"
            raise click.BadParameter(f"'{value}' is not a {whole} of {unit} above 0.")
        return number

    return read


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def several(*options: Decorator) -> Decorator:
    """Combine options into one decorator, in the order of `--help`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


output_and_config = several(text_or_json, config_dir)


def complete_model(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return known models of the usable clients; after a comma, for the next item of a list."""
    from .shells.known_models import known_models

    names = known_models(configured(ctx.params.get("config_dir"), os.environ)[0], os.environ)
    before, comma, begun = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(begun)]


def complete_kind(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return kinds of files in bundles; after a comma, for the next item of a list."""
    from ..actors.work.bundles.layout import KINDS

    before, comma, begun = incomplete.rpartition(",")
    return [f"{before}{comma}{kind}" for kind in KINDS if kind.startswith(begun)]


model = click.option(
    "-m",
    "--model",
    metavar="MODEL",
    shell_complete=complete_model,
    help="Use this model (client:model) instead of the models of config.yaml and of the file. It has no "
    "effect on nodes that name their own model, as agent nodes of DevAll workflows do. Of several, separated by "
    "commas, the first that answers.",
)
variables = click.option(
    "--var", "variables", metavar="NAME=VALUE", multiple=True, help="Set a variable of the agent; repeatable."
)
compat = click.option(
    "--compat",
    type=click.Choice(["standard", "loki", "devall"]),
    help="Follow these rules where dialects disagree; overrides the file.",
)
prepared_answers = several(
    click.option(
        "--answer",
        "answers",
        metavar="TEXT",
        multiple=True,
        help="Answer a question, in the order asked; repeatable.",
    ),
    click.option(
        "--answers",
        "answers_file",
        metavar="FILE",
        help="YAML file: a list of answers used in order, or a mapping of node id to answer or list of answers.",
    ),
)
on_unknown = click.option(
    "--on-unknown",
    type=click.Choice(ON_UNKNOWN),
    help="Treatment of a call or script that was under way when the process of a durable run was killed, "
    "and may have done its work: ask the user, tell the model, run it again, or fail. [default: the "
    "setting of files, else tell for calls of models and ask for scripts]",
)
sandbox = click.option(
    "--sandbox",
    type=click.Choice(["read-only", "workspace", "open", "off"]),
    help="Restrict the processes of tools, scripts and MCP servers: read-only, workspace (write below the "
    "working directory, reach allowed hosts), open (close only the kernel's interfaces), off. "
    "[default: sandbox of config.yaml, else workspace]",
)
no_input = click.option("--no-input", is_flag=True, help="Never ask at the terminal.")
yes_and_allow = several(
    click.option(
        "--yes",
        is_flag=True,
        help="Allow all tools, and builds of knowledge bases, without asking; denied calls stay denied.",
    ),
    click.option("--allow", metavar="TOOL", multiple=True, help="Allow this tool without asking; repeatable."),
)
permissions = several(
    yes_and_allow,
    click.option(
        "--root",
        "roots",
        metavar="DIR",
        multiple=True,
        help="Let the fs_* tools work in DIR as well as in the working directory; repeatable.",
    ),
)
dry_run = click.option(
    "--dry-run", is_flag=True, help="Send nothing to a model; the reply is the request that would be sent."
)
no_stream = click.option("-S", "--no-stream", is_flag=True, help="At a terminal: show the answer when it is complete.")
keep_requests = click.option(
    "--keep-requests/--no-keep-requests",
    default=None,
    help="Store the requests and replies of models for callboard show, or do not [default: keep_requests "
    "of config.yaml, else if stderr is a terminal].",
)
durable = click.option(
    "--durable/--ephemeral",
    default=None,
    help="Record the run in a journal, so that callboard resume can continue it after a kill, or do not "
    "[default: durable.by_default of config.yaml].",
)
cassettes = several(
    click.option(
        "--record", metavar="FILE", help="Record all input from outside (models, tools, answers) into FILE, a cassette."
    ),
    click.option(
        "--replay",
        metavar="FILE",
        help="Run from the cassette FILE, without a network or processes; without PROMPT, with the recorded prompt.",
    ),
    click.option(
        "--loose", is_flag=True, help="With --replay: match requests by their position only, not by their content."
    ),
)
result_form = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "stream-json"]),
    default="text",
    show_default=True,
    help="Form of the result on stdout.",
)
limits = several(
    click.option("--timeout", metavar="S", callback=above_zero("seconds", float), help="Maximum seconds of the run."),
    click.option(
        "--max-turns", metavar="N", callback=above_zero("model calls", int), help="Maximum model calls of the run."
    ),
    click.option(
        "--max-tokens",
        metavar="N",
        callback=above_zero("tokens", int),
        help="Maximum tokens of the run, input and output together.",
    ),
    click.option("--max-cost", metavar="USD", callback=above_zero("USD", float), help="Maximum cost of the run."),
    click.option(
        "--allow-unpriced",
        is_flag=True,
        help="With --max-cost: also use models without a known price, and count them as 0.",
    ),
    click.option(
        "--no-wait", is_flag=True, help="Fail (exit code 6) instead of waiting when a provider demands a pause."
    ),
)
loudness = several(
    click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr, no progress and no warnings."),
    click.option(
        "-v", "--verbose", is_flag=True, help="Print more on stderr: model calls, tools, nested graphs, times."
    ),
)

server = several(
    click.option(
        "--url",
        metavar="URL",
        envvar="CALLBOARD_URL",
        help="Address of the server [default: the newest on this machine].",
    ),
    click.option(
        "--token",
        metavar="TOKEN",
        help="Token for the server [default: $CALLBOARD_TOKEN, else the one that it stored on this machine].",
    ),
)


cluster = click.option(
    "--cluster",
    metavar="DSN",
    envvar="CALLBOARD_CLUSTER",
    help="PostgreSQL database of the cluster, as a libpq connection string [default: $CALLBOARD_CLUSTER].",
)


def check_loudness(given: dict[str, Any]) -> None:
    """Refuse `-q` together with `-v`."""
    if given["quiet"] and given["verbose"]:
        raise click.UsageError("-q and -v contradict each other.")


class ListByDefault(click.Group):
    """Command group with `list` as its default command: `callboard agents`, `callboard agents -o json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing and (not args or (args[0].startswith("-") and args[0] not in ("-h", "--help"))):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not ctx.resilient_parsing:
            from difflib import get_close_matches

            from ..protocol.problems import suggestion

            near = get_close_matches(name, self.commands, n=1)
            hint = suggestion(near[0]) if near else f"there are: {', '.join(self.commands)}"
            raise click.UsageError(f"'{self.name}' has no command '{name}'; {hint}", ctx)
        return super().resolve_command(ctx, args)


def complete_target(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return agents by name, and agent directories and YAML files of the current directory."""
    found = complete_agent(ctx, _parameter, incomplete)
    folder, _slash, start = incomplete.rpartition("/")
    here = Path(folder or ("/" if incomplete.startswith("/") else "."))
    for path in _entries(here):
        shown = f"{folder}/{path.name}" if "/" in incomplete else path.name
        if path.is_dir():
            found.append(shown if _is_agent(path) else shown + "/")
        elif path.suffix in (".yaml", ".yml"):
            found.append(shown)
    hidden = start.startswith(".")
    return sorted(
        name
        for name in set(found)
        if name.startswith(incomplete) and (hidden or not name.rpartition("/")[2].startswith("."))
    )


def complete_agent(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return agents of the configuration directory and built-in ones."""
    agents = configured(ctx.params.get("config_dir"), os.environ)[0] / "agents"
    names = {path.name for place in (agents, AGENTS) for path in _entries(place) if path.is_dir()}
    return sorted(name for name in names if name.startswith(incomplete) and not name.startswith((".", "_")))


def complete_base_name(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return named knowledge bases, and `.kb` directories of the current directory."""
    names = base_names(configured(ctx.params.get("config_dir"), os.environ)[0])
    folder, slash, _start = incomplete.rpartition("/")
    here = _entries(Path(folder or ("/" if slash else ".")))
    names |= {f"{folder}{slash}{path.name}" for path in here if path.suffix == ".kb" and path.is_dir()}
    return sorted(name for name in names if name.startswith(incomplete))


def base_names(home: Path) -> set[str]:
    """Return names of knowledge bases in a configuration directory, from file names alone."""
    places = (home / "knowledge", user_folder("rags", home))
    return {path.stem for place in places for path in _entries(place) if path.suffix == ".yaml"}


knowledge = several(
    click.option(
        "--kb",
        "knowledge",
        metavar="NAME",
        multiple=True,
        shell_complete=complete_base_name,
        help="Look PROMPT up in this knowledge base, and add the passages to it (callboard kb lists them); repeatable.",
    ),
    click.option(
        "-f",
        "--file",
        "files",
        metavar="FILE",
        multiple=True,
        type=click.Path(),
        help="Attach a file, image, directory, glob, URL, '`command`' or %% (the last reply) to PROMPT; repeatable.",
    ),
    click.option(
        "--rebuild-kb", "rebuild_knowledge", is_flag=True, help="First rebuild all knowledge bases of the run."
    ),
)


attach = click.option(
    "--attach",
    metavar="FILE",
    multiple=True,
    type=click.Path(),
    help="Attach a file unchanged, such as an image or a PDF, to the prompt of an LLM agent or a workflow; repeatable.",
)


def complete_session(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return sessions of the target, or those without an agent; Loki's sessions are included."""
    from ..actors.runs.sessions.names import scope_of

    home, _ = configured(ctx.params.get("config_dir"), os.environ)
    target = ctx.params.get("target")
    scope = scope_of(home, target if isinstance(target, str) and "/" not in target else None)
    names = {path.name for path in scope.pointers()}
    names |= {path.stem for path in _entries(scope.home) if path.suffix == ".yaml"}
    return sorted(name for name in names if name.startswith(incomplete) and not name.startswith("."))


session = several(
    click.option(
        "-s",
        "--session",
        metavar="SESSION",
        # click: an option with an optional value. The next word is the value, unless it begins with a dash.
        is_flag=False,
        flag_value="temp",
        shell_complete=complete_session,
        help="Continue a stored conversation, or begin one: a UUID is the id of a session, any other text is a "
        "name; temp, or -s without a value, is a session that is not stored.",
    ),
    click.option(
        "--save-session/--no-save-session",
        "save_session",
        default=None,
        help="Store the turns of this run in the session, or do not [default: save_session of the session, "
        "then of config.yaml].",
    ),
)


def complete_role(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return roles of the configuration directory and built-in ones."""
    return _complete_files(ctx, "roles", ".md", ROLES, incomplete)


def complete_macro(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return macros of the configuration directory and built-in ones."""
    return _complete_files(ctx, "macros", ".yaml", MACROS, incomplete)


def _complete_files(ctx: click.Context, kind: str, suffix: str, built_in: Path, incomplete: str) -> list[str]:
    own = configured(ctx.params.get("config_dir"), os.environ)[0] / kind
    names = {path.stem for place in (own, built_in) for path in _entries(place) if path.suffix == suffix}
    return sorted(name for name in names if name.startswith(incomplete) and not name.startswith("."))


role = several(
    click.option(
        "-r",
        "--role",
        metavar="ROLE",
        shell_complete=complete_role,
        help="Answer in this role (callboard roles lists them), with its arguments as ROLE#ONE#TWO.",
    ),
    click.option(
        "--prompt",
        "role_prompt",
        metavar="TEXT",
        help="Answer in a role made of TEXT: a system prompt; with __INPUT__, a text around PROMPT.",
    ),
)


def check_role(*, system: str, role: str | None, prompt: str | None) -> None:
    """Refuse more than one of the flags that set the system prompt."""
    given = [flag for flag, value in (("--role", role), ("--prompt", prompt), ("--system", system or None)) if value]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} contradict each other.")


def complete_base(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return TARGETs of `callboard kb`: bases, and agents, which may have some."""
    found = {*complete_base_name(ctx, parameter, incomplete), *complete_target(ctx, parameter, incomplete)}
    return sorted(name for name in found if not name.endswith(".kb/"))


def complete_interrupted(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of durable runs that can be resumed."""
    if not _entries(journal_dir(os.environ)):  # avoids the imports below
        return []
    from ..actors.runs.stored_runs import interrupted

    return [each.run for each in interrupted(os.environ) if each.run.startswith(incomplete)]


def complete_durable(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of all stored durable runs."""
    from ..actors.runs.rerun.fork import durable_runs

    return [run for run in durable_runs(os.environ) if run.startswith(incomplete)]


def complete_run(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return ids of runs with records."""
    names = {path.name for path in _entries(state_dir(os.environ) / "runs") if not path.name.startswith(".")}
    names.update(complete_interrupted(_ctx, _parameter, incomplete))
    return sorted(name for name in names if name.startswith(incomplete))


def complete_server(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return MCP servers of the configuration directory."""
    from ..actors.work.mcp.files import load_mcp

    base, _ = configured(ctx.params.get("config_dir"), os.environ)
    return sorted(name for name in load_mcp(base).servers if name.startswith(incomplete))


def complete_secret(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return names in the vault, if it opens without a passphrase."""
    from .vault_passphrase import names_to_complete

    return [name for name in names_to_complete(ctx.params.get("config_dir")) if name.startswith(incomplete)]


def complete_sign_in(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return targets of a sign-in: clients of config.yaml, and servers of mcp.json as `mcp:NAME`."""
    from .actions.auth import names_of_clients, names_of_servers

    config_dir = ctx.params.get("config_dir")
    names = [*names_of_clients(config_dir), *names_of_servers(config_dir)]
    return sorted(name for name in names if name.startswith(incomplete))


def _is_agent(path: Path) -> bool:
    return (path / "graph.yaml").is_file() or (path / "config.yaml").is_file()


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
