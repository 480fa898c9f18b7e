"""What a person is asked about when a sandbox has kept a process from something: files and variables."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fake_models import Reply
from support.messages import has_message, says
from support.repository import Repository
from support.sandbox_asked import told
from support.sandbox_surroundings import BACKENDS, need
from support.scripted_server import scripted_server

import callboard
from callboard.actors.work.sandbox.launch import missed_network, refused_paths
from callboard.actors.work.sandbox.variables import withheld

TOOL = """#!/usr/bin/env bash
# @cmd Says what it has.
show() {
  echo "key=$WEATHER_API_KEY plain=$MY_PLACE other=$OTHER_API_KEY" >> "$LLM_OUTPUT"
  [[ "$WEATHER_API_KEY" != "" ]]
}
eval "$(argc --argc-eval "$0" "$@")"
"""


SERVER = scripted_server(
    """
    try:
        with open(arguments["path"], "a") as file:
            file.write("x")
        return "written"
    except OSError as error:
        return str(error)
    """,
    write={"inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}}},
)


@pytest.fixture
def project(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    need("bubblewrap", monkeypatch)
    repository.agent("global_tools: [execute_command]")
    return repository


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that may be written, and is not in `/tmp`, of which each run has one of its own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


async def test_a_refused_write_becomes_a_question_and_the_command_runs_again(
    project: Repository, outside: Path
) -> None:
    cache = outside
    write = Reply(calls=[("execute_command", {"command": f"echo x >> {cache}/made && echo written"})])
    said = await told(project, write, person=("no",))
    assert "Read-only file system" in said[0]
    assert f"the sandbox did not let it write in {cache}: the user refused" in said[0]
    assert said[1].startswith(f"Let execute_command write in {cache}?")
    said = await told(project, write, write, person=("yes",))
    assert said[:2] == ["written\n", "written\n"]
    assert len(said) == 4
    assert len(await told(project, write, write, person=("run",))) == 3
    assert len(await told(project, write, person=("always",))) == 2
    assert len(await told(project, write, person=("no",))) == 1
    assert (cache / "made").read_text() == "x\n" * 6


async def test_nobody_is_asked_about_what_the_user_could_not_write_or_must_not(project: Repository) -> None:
    (project.root / ".git" / "hooks").mkdir(parents=True, exist_ok=True)
    (project.root / ".git" / "config").write_text("[core]\n")
    not_asked = ("/proc/version", "~/.ssh/authorized_keys", ".git/hooks/pre-commit", "/made", "/etc/made", "~/made")
    for path in not_asked:
        write = Reply(calls=[("execute_command", {"command": f"echo x > {path}"})])
        assert len(await told(project, write, person=("yes",))) == 1, path


@pytest.mark.parametrize(
    ("answer", "shows"),
    [("yes", "key=hot plain=Bath other="), ("no", "the user refused"), (None, "no user can be asked")],
)
async def test_a_secret_that_a_tools_file_names_is_asked_about(
    project: Repository, monkeypatch: pytest.MonkeyPatch, answer: str | None, shows: str
) -> None:
    for name, value in {"WEATHER_API_KEY": "hot", "MY_PLACE": "Bath", "OTHER_KEY": "cold", "UNNAMED": "x"}.items():
        monkeypatch.setenv(name, value)
    project.agent()
    tools = project.config / "agents" / "a" / "tools.sh"
    tools.write_text(TOOL)
    said = await told(project, Reply(calls=[("show", {})]), person=() if answer is None else (answer,))
    assert shows in said[0]
    if answer is None:
        assert has_message(said[0], "work.sandbox.launch.HeldProcess.afterwards", name="WEATHER_API_KEY")
    else:
        assert re.fullmatch(
            says("work.sandbox.launch.Launcher._secrets", name="show", variable="WEATHER_API_KEY"), said[1]
        )
    project.settings(sandbox={"env": ["WEATHER_*"]})
    assert "key=hot" in (await told(project, Reply(calls=[("show", {})]), sandbox=None))[0]


async def test_what_was_allowed_to_a_program_for_good_is_asked_again_when_that_has_changed(
    project: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEATHER_API_KEY", "hot")
    project.agent()
    tools = project.config / "agents" / "a" / "tools.sh"
    tools.write_text(TOOL)
    call = Reply(calls=[("show", {})])
    assert len(await told(project, call, person=("always",))) == 2
    assert len(await told(project, call, person=("no",))) == 1
    tools.write_text(TOOL + "# and more\n")
    assert len(await told(project, call, person=("no",))) == 2


@pytest.mark.parametrize(("answers", "asked"), [(("always: WEATHER_*",), 1), (("always: *", "no"), 2)])
async def test_a_pattern_of_variables_is_allowed_for_good(
    project: Repository, monkeypatch: pytest.MonkeyPatch, answers: tuple[str, ...], asked: int
) -> None:
    monkeypatch.setenv("WEATHER_API_KEY", "hot")
    project.agent()
    (project.config / "agents" / "a" / "tools.sh").write_text(TOOL)
    call = Reply(calls=[("show", {})])
    said = await told(project, call, person=answers)
    assert len(said) == 1 + asked
    assert ("key=hot" in said[0]) == (asked == 1)
    assert len(await told(project, call, person=("no",))) == asked


def test_variables_are_a_list_of_names() -> None:
    environ = dict.fromkeys(("PATH", "HOME", "LC_ALL", "UV_CACHE_DIR", "MY_PLACE", "GH_TOKEN", "SSH_AUTH_SOCK"), "x")
    environ |= {"http_proxy": "http://me:secret@proxy:3128", "PIP_INDEX_URL": "https://pypi.org/simple"}
    refused = {"MY_PLACE", "GH_TOKEN", "SSH_AUTH_SOCK", "http_proxy"}
    assert withheld(environ, ()) == refused
    assert withheld(environ, ("GH_*",), ["MY_PLACE", "SSH_AUTH_SOCK"]) == {"SSH_AUTH_SOCK", "http_proxy"}


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("touch: cannot touch '/x/y z': Read-only file system", "/x/y z"),
        ("touch: cannot touch ‘y’: Permission denied", "/here/y"),
        ("bash: line 1: /x/made: Read-only file system", "/x/made"),
        ("bash: made: Read-only file system\nbash: ./made: Permission denied", "/here/made"),
        ("OSError: [Errno 30] Read-only file system: '/x/made'", "/x/made"),
        ("Error: EROFS: read-only file system, open '/x/made'", "/x/made"),
        ("error: failed to open file `/x/uv/.lock`: Read-only file system (os error 30)", "/x/uv/.lock"),
        ("mkdir: cannot create directory '/x/a': Read-only file system", "/x/a"),
        (
            "npm error code EROFS\nnpm error rofs EROFS: read-only file system, mkdir '/x/.npm/_cacache'",
            "/x/.npm/_cacache",
        ),
    ],
)
def test_what_programs_say_of_a_refused_write_is_understood(said: str, path: str) -> None:
    assert path in refused_paths(said, "/here")


def test_other_words_are_none() -> None:
    assert refused_paths("1 passed\nPermission denied\nread-only: 5", "/here") == []
    assert missed_network("curl: (6) Could not resolve host: example.com")
    assert missed_network("urlopen error [Errno -3] Temporary failure in name resolution")
    assert not missed_network("1 failed, 2 passed")


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_program_that_dies_of_a_signal_says_so(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    repository.agent("global_tools: [execute_command]")
    (said,) = await told(repository, Reply(calls=[("execute_command", {"command": "kill -SEGV $$"})]))
    assert said == "[signal 11]"


async def test_where_hosts_can_t_be_told_apart_a_person_is_asked_about_the_network(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("landlock", monkeypatch)
    repository.agent("global_tools: [execute_command]")
    connect = "import socket; socket.create_connection(('127.0.0.1', 1), 5)"
    command = Reply(
        calls=[("execute_command", {"command": f'python3 -c "{connect}" || echo could not resolve; false'})]
    )
    said = await told(repository, command, person=("no",))
    assert has_message(said[0], "work.sandbox.launch.HeldProcess.afterwards.6")
    assert said[1].startswith("Let execute_command use the network?")
    said = await told(repository, command, person=("yes",))
    assert "Connection refused" in said[0]


async def test_without_any_backend_a_person_is_asked_each_time(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBOARD_SANDBOX_BACKEND", "none")
    repository.agent("global_tools: [execute_command]")
    command = Reply(calls=[("execute_command", {"command": "echo done"})])
    said = await told(repository, command, command, person=("yes",))
    assert said[:2] == ["done\n", "done\n"]
    assert len(said) == 4
    assert said[2].startswith("Start execute_command without a sandbox?\nthe sandbox profile")
    (said_alone,) = await told(repository, command)
    assert has_message(said_alone, "work.sandbox.launch.Launcher._without.2")


async def test_the_variable_says_it_for_all_runs(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_SANDBOX", "off")
    repository.agent("global_tools: [execute_command]")
    events: list[callboard.Event] = []
    await repository.run("over", on_event=events.append)
    assert events[0].data.sandbox == "off"  # type: ignore[attr-defined] - it is `run.started`


@pytest.mark.parametrize("backend", BACKENDS)
async def test_package_managers_keep_what_they_fetch_where_nobody_else_starts_it(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    monkeypatch.delenv("npm_config_cache", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(repository.home / ".cache"))
    repository.agent("global_tools: [execute_command]")
    line = "mkdir -p $npm_config_cache $UV_CACHE_DIR && touch $npm_config_cache/kept && echo $npm_config_cache"
    command = Reply(calls=[("execute_command", {"command": line})])
    (first,) = await told(repository, command)
    place = Path(first.strip())
    assert place.is_relative_to(repository.home / ".cache" / "callboard" / "workspaces")
    assert (place / "kept").exists()
    assert await told(repository, command) == [first]
    (repository.home / ".npm").mkdir()
    repository.settings(sandbox={"write": ["~/.npm"]})
    line = "echo ${npm_config_cache:-theirs}; touch ~/.npm/kept"
    assert await told(repository, Reply(calls=[("execute_command", {"command": line})]), sandbox=None) == ["theirs\n"]
    assert (repository.home / ".npm" / "kept").exists()


async def test_a_server_writes_what_its_entry_names_and_not_its_own_code(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, outside: Path
) -> None:
    need("bubblewrap", monkeypatch)
    (outside / "data").mkdir()
    (outside / "code").mkdir()
    server = outside / "code" / "server.py"
    server.write_text(SERVER)
    entry = {
        "command": sys.executable,
        "args": [str(server), f"--db={outside}/data/new.db"],
        "env": {"NOTES": str(outside / "notes" / "n.txt")},
    }
    (outside / "notes").mkdir()
    functions = repository.config / "functions"
    functions.mkdir(exist_ok=True)
    (functions / "mcp.json").write_text(json.dumps({"mcpServers": {"s": entry}}))
    repository.agent("mcp_servers: [s]")
    paths = [outside / "data" / "new.db", outside / "notes" / "n.txt", outside / "code" / "server.py", outside / "else"]
    said = await told(
        repository, *(Reply(calls=[("s__write", {"path": str(path)})]) for path in paths), allow=("s__write",)
    )
    assert said[:2] == ["written", "written"]
    assert all("Read-only file system" in each for each in said[2:])


DATABASE = scripted_server(
    """
    import sqlite3
    try:
        database = sqlite3.connect(arguments["path"])
        database.execute(f"pragma journal_mode={arguments['journal']}")
        database.execute("create table if not exists made (x)")
        database.execute("insert into made values (1)")
        database.commit()
        return str(database.execute("select count(*) from made").fetchone()[0])
    except sqlite3.Error as error:
        return f"Database error: {error}"
    """,
    note={},
)


NAMED = ("--db-path {}", "--db={}", "sqlite:///{}", "--url=sqlite+aiosqlite:////{}?mode=rw", "file://{}")


@pytest.mark.parametrize("named", NAMED)
async def test_the_database_of_a_server_may_be_named_in_many_ways(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, outside: Path, named: str
) -> None:
    need("bubblewrap", monkeypatch)
    (outside / "data").mkdir()
    database = outside / "data" / "notes.db"
    path = str(database).removeprefix("/" if "////" in named else "")
    server(repository, outside, DATABASE, *named.format(path).split())
    (said,) = await told(
        repository, Reply(calls=[("s__note", {"path": str(database), "journal": "wal"})]), allow=("s__note",)
    )
    assert said == "1"


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("existing", ["", "empty", "database"])
async def test_a_server_writes_the_database_that_its_entry_names(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, outside: Path, journal: str, existing: str
) -> None:
    """SQLite makes a journal beside it, without which it writes nothing."""
    need("bubblewrap", monkeypatch)
    (outside / "data").mkdir()
    (outside / "other").mkdir()
    database, other = outside / "data" / "notes.db", outside / "other" / "notes.db"
    if existing == "empty":
        database.touch()
    elif existing:
        with sqlite3.connect(database) as made:
            made.execute("create table made (x)")
        made.close()
    server(repository, outside, DATABASE, "--db-path", str(database))
    calls = [Reply(calls=[("s__note", {"path": str(path), "journal": journal})]) for path in (database, other)]
    said = await told(repository, *calls, allow=("s__note",))
    assert said[0] == "1"
    assert said[1].startswith("Database error")
    assert "sandbox.servers.s.write" in said[1]


def server(repository: Repository, outside: Path, program: str, *arguments: str, **more: object) -> Path:
    """Have an agent with one server `s`, which runs this program."""
    file = outside / "code" / "server.py"
    file.parent.mkdir()
    file.write_text(program)
    entry = {"command": sys.executable, "args": [str(file), *arguments], **more}
    functions = repository.config / "functions"
    functions.mkdir(exist_ok=True)
    (functions / "mcp.json").write_text(json.dumps({"mcpServers": {"s": entry}}))
    repository.agent("mcp_servers: [s]")
    return file


REFUSALS = {
    "Python": "[Errno 30] Read-only file system: '{code}/memory.jsonl'",
    "Node": "EROFS: read-only file system, open '{code}/memory.jsonl.a1b2.tmp'",
    "bash": "server.sh: line 3: {code}/memory.jsonl: Read-only file system",
}


FAILS = """
        if message["method"] == "tools/call":
            text = answer(message)["content"][0]["text"]
            said = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32603, "message": text}})
        print(said, flush=True)
"""


@pytest.mark.parametrize("how", ["result", "failure", "error", "end"])
@pytest.mark.parametrize("words", REFUSALS)
async def test_what_the_sandbox_refused_a_server_names_the_setting(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, outside: Path, words: str, how: str
) -> None:
    need("bubblewrap", monkeypatch)
    text = REFUSALS[words].format(code=outside / "code")
    code = {
        "result": f"return {text!r}",
        "failure": f"return {text!r}",
        "error": f"return {text!r}",
        "end": f"print({text!r}, file=sys.stderr, flush=True); sys.exit(1)",
    }[how]
    program = scripted_server(code, note={})
    if how == "failure":
        program = program.replace('"text": text}]', '"text": text}], "isError": True')
    if how == "error":
        program = program.replace("        print(json.dumps(", "        said = json.dumps(").replace(
            ", flush=True)", FAILS
        )
    server(repository, outside, program)
    (said,) = await told(repository, Reply(calls=[("s__note", {})]), allow=("s__note",))
    assert f"sandbox.servers.s.write: [{outside}/code]" in said


async def test_words_of_a_server_that_the_sandbox_refused_nothing_get_no_hint(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, outside: Path
) -> None:
    """The workspace may be written, other programs' words are data, and no setting opens /usr to ordinary users."""
    need("bubblewrap", monkeypatch)
    text = f"[Errno 30] Read-only file system: '{repository.root}/x'"
    program = scripted_server(f"return arguments['text'] or {text!r}", note={})
    server(repository, outside, program)
    texts = ["", "x" * 5000 + f" {outside}/code/x: Read-only file system", "Read-only file system"]
    texts += [f"ENOENT: no such file or directory, open '{repository.home}/.ssh/id'"]
    said = await told(repository, *(Reply(calls=[("s__note", {"text": each})]) for each in texts), allow=("s__note",))
    assert not any("sandbox" in each for each in said)


async def test_a_server_that_misses_a_hidden_directory_is_told_how_it_gets_it(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, outside: Path
) -> None:
    need("bubblewrap", monkeypatch)
    hidden = repository.home / ".cache" / "browsers"
    hidden.parent.mkdir()
    program = scripted_server(f"""return "ENOENT: no such file or directory, mkdir '{hidden}'" """, note={})
    server(repository, outside, program)
    (said,) = await told(repository, Reply(calls=[("s__note", {})]), allow=("s__note",))
    assert f"sandbox.servers.s.write: [{hidden}]" in said
    hidden.mkdir()
    again = f"""
    try:
        open({str(hidden)!r} + "/made", "w").close()
        return "written"
    except OSError as error:
        return str(error)
    """
    (outside / "code" / "server.py").write_text(scripted_server(again, note={}))
    repository.settings(sandbox={"profile": "workspace", "servers": {"s": {"write": [str(hidden)]}}})
    (said,) = await told(repository, Reply(calls=[("s__note", {})]), allow=("s__note",), sandbox=None)
    assert said == "written"


@pytest.mark.parametrize("command", ["{file}", "{python} {file}", "sh {file}"])
async def test_a_server_below_tmp_says_why_it_is_not_found(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A link, as `node_modules/.bin` has them: the program that a command names itself is there."""
    need("bubblewrap", monkeypatch)
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        link = Path(directory) / "bin" / "server"
        link.parent.mkdir()
        (link.parent.parent / "server.py").touch(0o755)
        link.symlink_to("../server.py")
        name, *args = command.format(file=link, python=sys.executable).split()
        functions = repository.config / "functions"
        functions.mkdir(exist_ok=True)
        (functions / "mcp.json").write_text(json.dumps({"mcpServers": {"s": {"command": name, "args": args}}}))
        repository.agent("mcp_servers: [s]")
        (said,) = await told(repository, Reply(calls=[("s__note", {})]), allow=("s__note",))
    assert f"a /tmp of its own, without {link}" in said
