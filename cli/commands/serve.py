"""`callboard serve`, `acp`, `keys`, `worker` and `cluster`: servers, keys for their callers, and clusters of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from .. import options

if TYPE_CHECKING:
    from ...actors.front.cluster.membership import Overview, WorkerOverview


@click.command("serve", short_help="Serve agents to users and programs: websocket, HTTP, a page.")
@click.option("--host", metavar="HOST", help="Address to listen on [default: api.listen_addr, else 127.0.0.1].")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="PORT", help="Port, 0 for a free one [default: 3400].")
@click.option("--ui", is_flag=True, help="Print the page's address with its token, even if stderr is not a terminal.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors, and the log.")
@options.durable
@options.cluster
@options.config_dir
def serve(*, cluster: str | None, **given: Any) -> int:
    """Serve the control channel, HTTP and the page on one port, until Ctrl-C or SIGTERM; SIGHUP reloads config.yaml.

    The server ends when the terminal in which it was started closes, except under nohup and setsid.

    By default it listens on this machine only, where `ps`, `attach` and the page find its token. For any other address,
    callers need keys (api.auth in config.yaml, `callboard keys`).

    At the first signal, runs under way have api.shutdown_grace_seconds to end; a second signal cancels them. Exit code
    0 if all had ended, else 130, 143 or 129.

    With --cluster it is a gateway: runs that are started here wait in the queue of the cluster for its workers
    (callboard worker), and the runs of all gateways can be listed, followed, answered and stopped here.
    """
    from ..actions.serve import serve_until_signal

    if cluster is None:
        return serve_until_signal(**given)
    from ...actors.front.cluster.membership import ClusterOptions, checked

    return serve_until_signal(**given, cluster=checked(ClusterOptions(dsn=cluster)))


@click.command("worker", short_help="Execute runs of a cluster.")
@options.cluster
@click.option("--name", metavar="NAME", default="", help="Name of this worker [default: the host name].")
@click.option("--has", metavar="LABEL,...", default="", help="Labels of this machine that runs may need: gpu,browser.")
@click.option(
    "--room",
    metavar="N",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Maximum number of concurrent runs.",
)
@click.option(
    "--lease",
    metavar="SECONDS",
    type=click.FloatRange(0.5),
    default=10.0,
    show_default=True,
    help="Silence after which other workers take over its runs; the same for all workers of a cluster.",
)
@click.option("--host", metavar="HOST", default="127.0.0.1", show_default=True, help="Address of its control channel.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    default=0,
    help="Port of its control channel [default: a free one].",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only errors, and the log.")
@options.config_dir
def worker(
    *,
    cluster: str | None,
    name: str,
    has: str,
    room: int,
    lease: float,
    host: str,
    port: int,
    quiet: bool,
    config_dir: str | None,
) -> int:
    """Execute runs from the queue of a cluster, until Ctrl-C or SIGTERM. Any number of workers, on any number of
    machines, share a queue. If a worker dies, another one continues its runs.

    Keys of models, MCP servers and settings are those of this machine. The files of agents come with the runs.

    At the first signal, runs have api.shutdown_grace_seconds to end, and the rest returns to the queue. A second signal
    ends the worker at once: other workers take over its runs after the lease. Exit code 0 if all had ended, else 130,
    143 or 129.
    """
    from ...actors.front.cluster.membership import ClusterOptions, checked
    from ...protocol.errors import UsageError
    from ..actions.serve import serve_until_signal

    if cluster is None:
        raise UsageError("the cluster is not named: give --cluster postgresql://..., or set CALLBOARD_CLUSTER")
    labels = tuple(each for part in has.split(",") if (each := part.strip()))
    place = checked(ClusterOptions(dsn=cluster, name=name, plays=True, has=labels, room=room, lease=lease))
    # durable: another worker can continue a run only from its journal.
    return serve_until_signal(
        host=host, port=port, ui=False, quiet=quiet, durable=True, config_dir=config_dir, cluster=place
    )


@click.command("acp", short_help="Serve an agent to an editor (Agent Client Protocol).")
@click.argument("agent", required=False, shell_complete=options.complete_agent)
@options.config_dir
def acp(agent: str | None, config_dir: str | None) -> int:
    """Serve the Agent Client Protocol over stdin and stdout, for an editor that starts this command. It ends when the
    editor closes the connection.

    AGENT answers in new sessions, unless the editor names another one. Without AGENT, the model of config.yaml answers,
    without tools. Conversations are stored as sessions (callboard sessions).
    """
    from ...actors.front.acp.agent import serve_acp
    from ...actors.runs.finding import find
    from ...actors.runs.root import Root
    from ...actors.runs.target import read
    from ..frame import exit_code_of, play
    from ..render.progress import ProgressDisplay

    async def speak(root: Root) -> int:
        if agent is not None:
            # An agent with errors ends the command here; otherwise the editor would see the error only in its first
            # session.
            read(find(agent, config_dir=root.config_dir), root.config_dir, registry=root.registry)
        await serve_acp(root, agent)
        return exit_code_of(root)

    if sys.stdin.isatty():
        sys.stderr.write(
            "callboard: waiting for an editor on stdin and stdout, which is a terminal (Ctrl-C ends this command)\n"
        )
    return play(speak, ProgressDisplay(), config_dir=config_dir, person=False, serving=True)


_NO_SCOPES = ("read:runs", "write:runs", "run:agents", "read:agents", "answer:questions")
"""Default scopes of a key: agents by name, and the runs that it started."""


@click.group("keys", short_help="Make keys for callers of `callboard serve`.")
def keys() -> None:
    """Make keys for callers of `callboard serve`.

    config.yaml contains only the hash of a key. The key itself is printed once and not stored.
    """


@keys.command("new", short_help="Make a key, and print the lines for config.yaml.")
@click.argument("subject")
@click.option("--scope", "-s", "scopes", multiple=True, help="Permission of the key; repeatable; '*' for all.")
def new(subject: str, scopes: tuple[str, ...]) -> int:
    """Make a key for SUBJECT. Print the key on stdout, and the lines for config.yaml on stderr.

    \b
    callboard keys new alice -s run:agents -s read:runs > alice.key
    """
    from ...actors.front.access.credentials import new_key
    from ...protocol.control.caller import SCOPES
    from ...protocol.errors import UsageError
    from ...protocol.problems import did_you_mean

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
    sys.stderr.write("# the key itself, printed only this once:\n")
    sys.stderr.flush()
    # Only the key: `> alice.key` stores it without the lines for config.yaml.
    sys.stdout.write(key + "\n")
    return 0


@keys.command("hash", short_help="Print the hash of an existing key.")
def hash() -> int:
    """Read a key from stdin (one line, not echoed at a terminal) and print its hash for config.yaml."""
    from ...protocol.errors import UsageError

    terminal = sys.stdin.isatty()
    key = click.prompt("key", hide_input=True, err=True) if terminal else sys.stdin.readline().rstrip("\n")
    if len(key) < 16:
        raise UsageError("a key needs at least 16 characters: programs can guess shorter ones")
    sys.stdout.write(_hash(key) + "\n")
    return 0


def _hash(key: str) -> str:
    from ...actors.front.access.credentials import hashed
    from ...protocol.errors import ConfigError
    from ...supervisors.installation import install_command

    try:
        return hashed(key)
    except ImportError as error:
        raise ConfigError(f"hashing keys needs {error.name}; run: {install_command('server')}") from None


def _entry(subject: str, id: str, hash: str, scopes: tuple[str, ...]) -> str:
    import json

    listed = ", ".join(json.dumps(scope) for scope in scopes)
    quoted = json.dumps(subject, ensure_ascii=False)
    return f"- subject: {quoted}\n  id: {json.dumps(id)}\n  key_hash: {json.dumps(hash)}\n  scopes: [{listed}]"


_HEAD = ("WORKER", "RUNS", "ROOM", "LEASE", "HAS", "VERSION")


@click.command("cluster", short_help="Show the workers and the queue of a cluster.")
@options.cluster
@click.option("--migrate", is_flag=True, help="First create the tables, or migrate them to this version.")
@options.text_or_json
def cluster(cluster: str | None, migrate: bool, as_json: bool) -> str:
    """Show the workers of the cluster in a database, its queue, and the number of runs that were taken over from dead
    workers.

    Workers and gateways create the tables themselves. If their database roles may not do so, run --migrate with a role
    that may: before the first worker starts, and before each new version.

    \b
      callboard cluster
      callboard cluster --migrate --cluster postgresql://owner@db/callboard
    """
    return _overview_text(cluster, migrate=migrate, as_json=as_json)


def _overview_text(dsn: str | None, *, migrate: bool, as_json: bool) -> str:
    """Return workers and queue as text or JSON. Raises as `overview` does.

    Raises:
        UsageError: no database is named.
    """
    import msgspec

    from ...actors.front.cluster.membership import overview
    from ...protocol.errors import UsageError
    from ..render.text import json_object

    if dsn is None:
        raise UsageError("the cluster is not named: give --cluster postgresql://..., or set CALLBOARD_CLUSTER")
    found = overview(dsn, makes_tables=migrate)
    return json_object(**msgspec.to_builtins(found)) if as_json else _as_text(found)


def _as_text(found: Overview) -> str:
    from ..render.text import table

    waits = f", the oldest for {found.oldest:.0f} s" if found.queued else ""
    lines = (
        [table([_HEAD, *map(_row, found.workers)])] if found.workers else ["no workers; to start one: callboard worker"]
    )
    lines += ["", f"queued     {found.queued}{waits}"]
    refused = f"{found.fenced} times the former worker came back, and was refused"
    lines += [f"taken over {found.takeovers} from silent workers; {refused}"]
    known = "" if found.tables == found.known else f"; this callboard expects version {found.known}"
    lines += [f"tables     version {found.tables}{known}"]
    return "\n".join(lines)


def _row(worker: WorkerOverview) -> tuple[str, ...]:
    lease = f"{worker.left:.0f} s" if worker.left > 0 else "over"
    if worker.draining:
        lease += ", ends"
    return worker.name, str(worker.runs), str(worker.room), lease, ",".join(worker.has), worker.version
