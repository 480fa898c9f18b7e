"""Installing bundles from git repositories and directories: what is taken, kept, refused, updated and removed."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from support.bundles import AGENT, BUNDLE, TAKEN, TOOL, BundleInstaller, Repository, files_below, put
from support.messages import has_message, says

from callboard.actors.engine.graph.findings import agents_in
from callboard.actors.io import temporary
from callboard.actors.runs.target import LoopAgent, load_agent
from callboard.actors.work.bundles import source
from callboard.actors.work.bundles.manage import installed
from callboard.actors.work.bundles.source import BUILT_IN
from callboard.actors.work.bundles.transaction import read_manifest
from callboard.protocol.errors import (
    Conflict,
    InvalidFile,
    NobodyToAsk,
    NotFound,
    NotKept,
    UpstreamError,
    UsageError,
)
from callboard.protocol.mcp.editing import entries_of


async def test_what_a_repository_holds_lies_in_the_configuration_directory(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    done = await bundle_installer.install(repository.url)
    assert done.changed
    assert done.name == "team"
    servers = bundle_installer.files["mcp.json"]
    assert {path: text for path, text in bundle_installer.files.items() if path != "mcp.json"} == TAKEN
    assert list(entries_of(servers, "mcp.json")) == ["docs"]
    assert os.access(bundle_installer.base / "functions/tools/ring.sh", os.X_OK)
    assert not os.access(bundle_installer.base / "roles/kind.md", os.X_OK)
    bundle = read_manifest(bundle_installer.base).bundles["team"]
    assert (bundle.url, bundle.commit) == (repository.url, repository.git("rev-parse", "HEAD"))
    assert bundle.files.keys() == TAKEN.keys()


async def test_before_anything_is_written_a_person_reads_what_will_be_able_to_run(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    bundle_installer.answers = [False]
    done = await bundle_installer.install(repository.url)
    assert done.refused
    assert bundle_installer.files == {}
    assert bundle_installer.asked == ["Install team?"]
    (told,) = bundle_installer.told
    for line in (
        "agent clerk (new): Sorts letters.",
        "runs its own programs without asking: tools.py (stamp)",
        "may run any command with execute_command, after asking",
        "tool ring (new): Rings.",
        "runs bash without asking: ring(how)",
        "plays: .role kind",
        "starts: docs-server ${DOCS_TOKEN}",
        "receives from the environment or the vault: DOCS_TOKEN",
    ):
        assert line in told


async def test_without_a_person_nothing_is_done(bundle_installer: BundleInstaller, repository: Repository) -> None:
    bundle_installer.nobody()
    with pytest.raises(NobodyToAsk):
        await bundle_installer.install(repository.url)
    assert bundle_installer.told
    assert bundle_installer.files == {}


async def test_nothing_of_a_bundle_is_run(
    bundle_installer: BundleInstaller, repository: Repository, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    code = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\ndef stamp():\n    '''Stamps.'''\n"
    hook = f"#!/bin/sh\ntouch {mark}\n"
    repository.commit(
        {
            "agents/clerk/tools.py": code,
            "functions/tools/ring.sh": f"touch {mark}\n" + BUNDLE["functions/tools/ring.sh"],
            ".gitattributes": "* filter=evil diff=evil\n",
            ".gitmodules": "",
        }
    )
    for name in ("post-checkout", "post-merge", "pre-auto-gc", "reference-transaction"):
        put(repository.path / ".git/hooks", {name: hook})
    bundle_installer.environ |= {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "filter.evil.smudge",
        "GIT_CONFIG_VALUE_0": f"touch {mark}",
    }
    await bundle_installer.install(repository.url)
    await bundle_installer.install(repository.url, force=True)
    assert not mark.exists()


async def test_a_branch_a_tag_and_a_commit_can_be_named(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    first = repository.git("rev-parse", "HEAD")
    repository.git("tag", "v1")
    repository.git("branch", "feature/old")
    repository.commit({"roles/kind.md": "newer\n"})
    for ref in ("v1", "feature/old", first, first[:9]):
        await bundle_installer.install(f"{repository.url}#{ref}", "roles", force=True)
        assert bundle_installer.files["roles/kind.md"] == "You are kind.\n", ref
        await bundle_installer.install(repository.url, "roles", force=True)
        assert bundle_installer.files["roles/kind.md"] == "newer\n", ref
    for ref in ("nope", "0123456789"):
        with pytest.raises(UsageError, match=f"no .*commit.* '{ref}'"):
            await bundle_installer.install(f"{repository.url}#{ref}")


@pytest.mark.parametrize(
    ("filters", "paths"),
    [
        (("roles",), ["roles/kind.md", "roles/terse.md"]),
        (("kind",), ["roles/kind.md"]),
        (("agents/clerk", "greet"), ["agents/clerk/config.yaml", "agents/clerk/tools.py", "macros/greet.yaml"]),
        (("functions",), ["functions/tools/ring.sh"]),
        (("mcp_config",), ["mcp.json"]),
    ],
)
@pytest.mark.sample(3)
async def test_a_part_can_be_chosen(
    bundle_installer: BundleInstaller, repository: Repository, filters: tuple[str, ...], paths: list[str]
) -> None:
    await bundle_installer.install(repository.url, *filters)
    assert sorted(bundle_installer.files) == paths


async def test_a_filter_that_names_nothing_is_an_error(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    with pytest.raises(UsageError, match=says("protocol.problems.suggestion", name="clerk")):
        await bundle_installer.install(repository.url, "clark")


async def test_a_bundle_may_stand_in_a_directory_below(bundle_installer: BundleInstaller, tmp_path: Path) -> None:
    made = Repository(tmp_path / "deep")
    made.commit({f"share/assets/{path}": text for path, text in BUNDLE.items()} | {"docs/x.md": "x"})
    await bundle_installer.install(made.url)
    assert "roles/kind.md" in bundle_installer.files
    made.commit({"other/assets/roles/x.md": "x"})
    with pytest.raises(InvalidFile, match=says("work.bundles.layout.lay_out.2")):
        await bundle_installer.install(made.url)
    await bundle_installer.install(made.url, path="other/assets")
    assert "roles/x.md" in bundle_installer.files


async def test_a_plain_directory_is_a_source_too(bundle_installer: BundleInstaller, tmp_path: Path) -> None:
    put(tmp_path / "plain", BUNDLE)
    await bundle_installer.install("plain")
    assert {path: text for path, text in bundle_installer.files.items() if path != "mcp.json"} == TAKEN


async def test_what_belongs_to_the_authors_machine_stays_there(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    repository.commit(
        {
            "config.yaml": "model: x\n",
            ".env": "KEY=1\n",
            "agents/clerk/.env": "KEY=1\n",
            "agents/clerk/sessions/old.yaml": "x\n",
            "functions/bin/git": "#!/bin/sh\n",
        }
    )
    await bundle_installer.install(repository.url)
    assert bundle_installer.files.keys() == {*TAKEN, "mcp.json"}
    assert "agents/clerk/.env: is specific to its author's machine" in bundle_installer.told[0]
    assert has_message(bundle_installer.told[0], "work.bundles.layout._of", path="…functions/bin/git")


async def test_what_can_not_be_used_is_named_and_left_out(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    repository.commit(
        {
            "agents/clerk/config.yaml": "name: [\n",
            "functions/tools/mute.sh": "main() { :; }\n",
            "agents/two/config.yaml": AGENT,
            "agents/two/graph.yaml": "x: 1\n",
            "mcp.json": '{"mcpServers": {"odd": {"args": 3}, "docs": {"command": "d"}}}',
        }
    )
    await bundle_installer.install(repository.url)
    assert not [path for path in bundle_installer.files if "agents" in path or "mute" in path]
    assert list(entries_of(bundle_installer.files["mcp.json"], "f")) == ["docs"]
    for what in ("agent clerk: ", "tool mute: ", "agent two: agents/two has both", "MCP server odd: "):
        assert f"\n  {what}" in bundle_installer.told[0]


async def test_a_tool_file_in_the_place_of_one_that_asks_is_told_for_each_agent_that_uses_it(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    repository.commit({"functions/tools/execute_command.sh": TOOL, "functions/tools/send_mail.sh": TOOL})
    bundle_installer.answers = [False]
    await bundle_installer.install(repository.url)
    assert "agent clerk (new): Sorts letters.\n      runs its own programs" in bundle_installer.told[0]
    assert has_message(bundle_installer.told[0], "work.bundles.candidate._tools_line.2", unasked="execute_command…")
    assert "execute_command, after asking" not in bundle_installer.told[0]
    assert has_message(bundle_installer.told[0], "work.bundles.candidate._hides", kind="tool", name="execute_command")
    assert "runs bash after asking: send_mail(how)" in bundle_installer.told[0]


async def test_what_is_to_be_run_is_shown_whole_and_no_text_forges_a_line(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    args = ["x" * 1_000, "&& evil\n  agent good: as it is\u202e"]
    servers = {"docs": {"command": "d", "args": args}, "long": {"command": "d", "args": ["x" * 5_000]}}
    steps = "".join(f"  - say {number}\n" for number in range(60))
    repository.commit({"mcp.json": json.dumps({"mcpServers": servers}), "macros/greet.yaml": f"steps:\n{steps}"})
    bundle_installer.answers = [False]
    await bundle_installer.install(repository.url)
    (told,) = bundle_installer.told
    assert f"starts: d {args[0]} && evil agent good: as it is\\u202e\n" in told
    assert "MCP server long: the command that the item runs has more than 4000 characters" in told
    assert "plays: say 59" in told
    repository.commit({"mcp.json": json.dumps({"mcpServers": {"a\n  agent b: as it is": {"command": "d"}}})})
    with pytest.raises(InvalidFile, match=says("work.bundles.candidate._servers.3")):
        await bundle_installer.install(repository.url)


async def test_no_tool_is_shown_in_the_place_of_the_one_that_would_run(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    """Tools are found by their names, a `.sh` before a `.py`: what is shown has to be what runs."""
    python = 'def run():\n    """Harmless."""\n'
    repository.commit({"functions/tools/ring.py": python, "tools/bell.py": python})
    put(bundle_installer.base, {"functions/tools/bell.sh": TOOL})
    await bundle_installer.install(repository.url)
    assert (
        "tool ring: the bundle has several files with this tool's name (functions/tools/ring.py, "
        in bundle_installer.told[0]
    )
    assert has_message(bundle_installer.told[0], "work.bundles.manage._two_of_a_kind", brought="bell.py", kind="tool")
    assert [path for path in bundle_installer.files if "tools/" in path] == ["functions/tools/bell.sh"]


async def test_every_secret_that_is_asked_for_is_told(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    headers = {"A": "${env:ONE_KEY}", "B": "Bearer {{ two-key }}", "C": "${THREE_KEY:-x}"}
    agent = f"{AGENT}variables: [{{name: token, default: 'x {{{{FOUR_KEY}}}}'}}]\n"
    repository.commit(
        {
            "mcp.json": json.dumps({"mcpServers": {"docs": {"url": "https://example.org", "headers": headers}}}),
            "agents/clerk/config.yaml": agent,
        }
    )
    bundle_installer.answers = [False]
    await bundle_installer.install(repository.url)
    assert has_message(
        f"{bundle_installer.told[0]}\n",
        "work.bundles.candidate.capabilities_of_server.6",
        names="ONE_KEY, THREE_KEY, two-key",
    )
    assert has_message(bundle_installer.told[0], "work.bundles.candidate._secrets", names="FOUR_KEY")


async def test_what_runs_in_a_workflow_within_a_workflow_is_told(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    inner = {"nodes": [{"id": "b", "type": "python", "config": {}}]}
    outer = {"graph": {"nodes": [{"id": "a", "type": "subgraph", "config": {"type": "config", "config": inner}}]}}
    repository.commit({"workflows/flow.yaml": json.dumps(outer)})
    bundle_installer.answers = [False]
    await bundle_installer.install(repository.url)
    assert (
        "has nodes: python, subgraph\n      runs its own programs, or tools, without asking" in bundle_installer.told[0]
    )


async def test_what_a_server_has_set_in_its_environment_is_shown_whole(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    """A variable may name the program that runs: GIT_SSH_COMMAND, NODE_OPTIONS, BASH_ENV."""
    env = {"GIT_SSH_COMMAND": "sh -c evil", "KEY": "${ONE_KEY}"}
    repository.commit({"mcp.json": json.dumps({"mcpServers": {"docs": {"command": "git", "env": env}}})})
    bundle_installer.answers = [False]
    await bundle_installer.install(repository.url)
    assert has_message(
        bundle_installer.told[0],
        "work.bundles.candidate.capabilities_of_server.7",
        given="GIT_SSH_COMMAND=sh -c evil KEY=${ONE_KEY}",
    )


async def test_no_name_of_a_file_forges_a_line(bundle_installer: BundleInstaller, repository: Repository) -> None:
    repository.commit({"functions/bin/a\n  agent good: as it is\x1b[2J": "x"})
    bundle_installer.answers = [False]
    await bundle_installer.install(repository.url)
    assert has_message(bundle_installer.told[0], "work.bundles.layout._of")


# --- what is refused


async def test_links_submodules_and_odd_names_are_refused_each_with_a_line(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    (repository.path / "agents/clerk/link.md").symlink_to("/etc/passwd")
    (repository.path / "roles/out.md").symlink_to("../../x.md")
    put(repository.path, {"agents/clerk/a\\b.md": "x", "agents/clerk/Notes.md": "x", "agents/clerk/notes.md": "x"})
    (repository.path / "agents/clerk/large").write_bytes(b"x" * (4 * 1024 * 1024 + 1))
    head = repository.git("rev-parse", "HEAD")
    repository.git("add", "-A")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{head},agents/clerk/module")
    repository.git("commit", "-q", "-m", "b")
    with pytest.raises(InvalidFile) as refused:
        await bundle_installer.install(repository.url)
    text = str(refused.value)
    for line in (
        "agents/clerk/link.md is a symbolic link",
        "roles/out.md is a symbolic link",
        "agents/clerk/module is a git submodule",
        "agents/clerk/large has 4096 KiB",
        "is too long for a path, or is not a portable path",
        "'agents/clerk/notes.md' and 'agents/clerk/Notes.md' are the same name",
    ):
        assert line in text
    assert has_message(text, "work.bundles.layout.refuse.3")
    assert bundle_installer.files == {}
    await bundle_installer.install(repository.url, "macros")  # what is sound of it can be chosen


async def test_a_file_in_the_place_of_a_directory_is_refused(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    repository.commit({"functions/agents/clerk/tools.py/x": "x"})
    with pytest.raises(InvalidFile, match=says("work.bundles.layout._collisions", path="…'agents/clerk/tools.py…")):
        await bundle_installer.install(repository.url)
    assert bundle_installer.files == {}


async def test_a_repository_of_endless_paths_is_refused_at_once(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    """A few objects that name each other ten times over make a billion files."""
    blob = repository.git("rev-parse", "HEAD:roles/kind.md")
    tree = repository.tree(f"100644 blob {blob}\ta.md")
    for _ in range(11):
        tree = repository.tree(*(f"040000 tree {tree}\t{number}" for number in range(10)))
    commit = repository.git("commit-tree", "-m", "a", tree)
    repository.git("update-ref", "refs/heads/main", commit)
    with pytest.raises(InvalidFile, match=says("work.bundles.source._Git.ask.3", arguments="ls-tree")):
        await bundle_installer.install(repository.url)


async def test_links_and_pipes_in_a_directory_are_refused(bundle_installer: BundleInstaller, tmp_path: Path) -> None:
    put(tmp_path / "plain", BUNDLE)
    (tmp_path / "plain/agents/clerk/up").symlink_to("..")
    os.mkfifo(tmp_path / "plain/agents/clerk/pipe")
    with pytest.raises(InvalidFile, match=r"(?s)pipe is not a regular file.*up is a symbolic link"):
        await bundle_installer.install("plain")


async def test_a_repository_without_anything_for_us_says_what_is_looked_for(
    bundle_installer: BundleInstaller, tmp_path: Path
) -> None:
    made = Repository(tmp_path / "other")
    with pytest.raises(InvalidFile, match=says("work.bundles.source._Git._refused.2")):
        await bundle_installer.install(made.url)
    made.commit({"src/main.py": "x", ".github/workflows/ci.yaml": "x"})
    with pytest.raises(InvalidFile, match=says("work.bundles.layout.lay_out")):
        await bundle_installer.install(made.url)
    made.commit({"tools/build.sh": "echo x"})
    with pytest.raises(InvalidFile, match="nothing in the bundle can be installed:\n  tool build: "):
        await bundle_installer.install(made.url)
    made.commit({"tools/ring.sh": BUNDLE["functions/tools/ring.sh"]})
    await bundle_installer.install(made.url)
    assert list(bundle_installer.files) == ["functions/tools/ring.sh"]


async def test_a_repository_that_is_too_large_or_too_slow_is_not_fetched(
    bundle_installer: BundleInstaller, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository.path / "roles/large.md").write_bytes(os.urandom(3_000_000))
    repository.commit({})
    monkeypatch.setattr(source, "_BOUNDED", 'ulimit -f 1000; exec git "$@"')
    with pytest.raises(InvalidFile, match=says("work.bundles.source._Git._refused.4", MIB=256)):
        await bundle_installer.install(repository.url)
    monkeypatch.setattr(source, "_BOUNDED", 'sleep 60; exec git "$@"')
    monkeypatch.setattr(source, "SECONDS", 0.3)
    with pytest.raises(UpstreamError, match=says("work.bundles.source._Git.run", SECONDS="0.3")):
        await bundle_installer.install(repository.url)
    assert bundle_installer.files == {}


async def test_a_directory_for_temporary_files_that_takes_nothing_is_named(
    bundle_installer: BundleInstaller, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        temporary, "usual_bases", lambda: [temporary.ProcessDirectoryBase(tmp_path / "nowhere" / "x", shared=True)]
    )
    with pytest.raises(NotKept, match="can't be written to: No such file or directory; set TMPDIR to another"):
        await bundle_installer.install(repository.url)


async def test_a_repository_that_is_not_there_is_an_error_of_the_other_side(
    bundle_installer: BundleInstaller, tmp_path: Path
) -> None:
    with pytest.raises(UpstreamError, match=says("work.bundles.source._Git._refused.6")):
        await bundle_installer.install((tmp_path / "nowhere").as_uri())


# --- what is there already


async def test_what_is_there_is_replaced_only_when_a_person_says_so(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    put(bundle_installer.base, {"roles/kind.md": "mine\n"})
    bundle_installer.answers = [False]
    await bundle_installer.install(repository.url)
    assert has_message(bundle_installer.asked[0], "work.bundles.manage.apply_bundle.3", taken="role kind")
    assert bundle_installer.files["roles/kind.md"] == "mine\n"
    assert "roles/terse.md" in bundle_installer.files
    assert "roles/kind.md" not in read_manifest(bundle_installer.base).bundles["team"].files
    bundle_installer.answers = [True]
    await bundle_installer.install(repository.url)
    assert bundle_installer.files["roles/kind.md"] == "You are kind.\n"


async def test_a_script_is_told_what_is_in_the_way_and_nothing_is_done(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    put(bundle_installer.base, {"roles/kind.md": "mine\n", "mcp.json": '{"mcpServers": {"docs": {"command": "mine"}}}'})
    before = bundle_installer.files
    with pytest.raises(Conflict, match=says("work.bundles.manage.apply_bundle.2")):
        await bundle_installer.install(repository.url, yes=True)
    assert bundle_installer.files == before
    await bundle_installer.install(repository.url, yes=True, force=True)
    assert bundle_installer.files["roles/kind.md"] == "You are kind.\n"
    assert entries_of(bundle_installer.files["mcp.json"], "f")["docs"]["command"] == "docs-server"


async def test_servers_join_those_of_the_user_and_leave_their_file_as_it_is(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    mine = '{\n  // mine\n  "mcpServers": {\n    "time": {"command": "t"}, // the clock\n  },\n}\n'
    put(bundle_installer.base, {"functions/mcp.json": mine})
    await bundle_installer.install(repository.url)
    text = bundle_installer.files["functions/mcp.json"]
    assert "mcp.json" not in bundle_installer.files
    assert list(entries_of(text, "f")) == ["time", "docs"]
    assert "// mine" in text
    assert "// the clock" in text
    await bundle_installer.remove("team")
    assert list(entries_of(bundle_installer.files["functions/mcp.json"], "f")) == ["time"]


async def test_the_file_of_servers_keeps_its_ends_of_lines_and_its_indentation(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    mine = '\ufeff{\r\n\t// mine\r\n\t"mcpServers": {\r\n\t\t"time": {"command": "t"} \r\n\t}\r\n}'.encode()
    bundle_installer.base.mkdir(exist_ok=True)
    file = bundle_installer.base / "mcp.json"
    file.write_bytes(mine)
    await bundle_installer.install(repository.url)
    text = file.read_bytes()
    assert b'"t"}, \r\n\t\t"docs": {\r\n\t\t\t"' in text
    assert text.count(b"\n") == text.count(b"\r\n")
    await bundle_installer.remove("team")
    assert file.read_bytes() == mine


async def test_the_file_of_servers_keeps_its_mode_and_stays_a_link(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    outside = bundle_installer.base.parent / "dotfiles.json"
    outside.write_text('{"mcpServers": {"time": {"command": "t", "env": {"TOKEN": "t"}}}}')
    outside.chmod(0o600)
    bundle_installer.base.mkdir(exist_ok=True)
    (bundle_installer.base / "mcp.json").symlink_to(outside)
    await bundle_installer.install(repository.url)
    assert (bundle_installer.base / "mcp.json").is_symlink()
    assert list(entries_of(outside.read_text(), "f")) == ["time", "docs"]
    assert outside.stat().st_mode & 0o777 == 0o600
    await bundle_installer.remove("team")
    assert (bundle_installer.base / "mcp.json").is_symlink()
    assert list(entries_of(outside.read_text(), "f")) == ["time"]
    assert outside.stat().st_mode & 0o777 == 0o600


async def test_an_agent_gets_no_second_file_of_a_kind(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    put(bundle_installer.base, {"agents/clerk/graph.yaml": "mine\n"})
    await bundle_installer.install(repository.url, force=True)
    assert "agents/clerk/config.yaml" not in bundle_installer.files
    assert has_message(
        bundle_installer.told[0],
        "work.bundles.manage._two_of_a_kind",
        path="…agents/clerk/graph.yaml",
        brought="config.yaml",
    )


async def test_an_agent_that_becomes_a_graph_does_so_unless_the_user_has_changed_its_file(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    graph = "name: clerk\nstart: end\nnodes:\n  end: {type: end, output: x}\n"
    await bundle_installer.install(repository.url)
    config = bundle_installer.files["agents/clerk/config.yaml"]
    repository.commit({"agents/clerk/graph.yaml": graph}, without=("agents/clerk/config.yaml",))
    put(bundle_installer.base, {"agents/clerk/config.yaml": config + "# mine\n"})
    await bundle_installer.update("team")
    assert "agents/clerk/graph.yaml" not in bundle_installer.files
    assert "agents/clerk/tools.py" in bundle_installer.files
    assert bundle_installer.files["agents/clerk/config.yaml"].endswith("# mine\n")
    put(bundle_installer.base, {"agents/clerk/config.yaml": config})
    await bundle_installer.install(repository.url)
    assert "agents/clerk/graph.yaml" in bundle_installer.files


async def test_what_upstream_has_broken_stays_as_it_is_installed(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    await bundle_installer.install(repository.url)
    before = bundle_installer.files
    servers = '{"mcpServers": {"docs": {"args": 3}}}'
    repository.commit({"agents/clerk/config.yaml": "name: [", "functions/tools/ring.sh": "x\n", "mcp.json": servers})
    await bundle_installer.update("team")
    assert bundle_installer.files == before
    assert "agent clerk: " in bundle_installer.told[-1]
    repository.commit({"agents/clerk/config.yaml": AGENT + "# mended\n"})
    await bundle_installer.update("team")
    assert bundle_installer.files["agents/clerk/config.yaml"].endswith("# mended\n")


async def test_what_agents_and_tools_share_comes_with_them(bundle_installer: BundleInstaller, tmp_path: Path) -> None:
    shared = {"agents/.shared/utils.sh": "x\n", "functions/utils/help.sh": "x\n"}
    put(tmp_path / "plain", BUNDLE | shared | {"functions/agents/second/config.yaml": AGENT})
    await bundle_installer.install("plain", "ring")
    assert sorted(bundle_installer.files) == ["functions/tools/ring.sh", "functions/utils/help.sh"]
    await bundle_installer.install("plain", "second")
    assert {"agents/second/config.yaml", "agents/.shared/utils.sh"} <= bundle_installer.files.keys()
    assert "agents/clerk/config.yaml" not in bundle_installer.files


async def test_a_directory_that_is_a_link_of_the_users_is_written_through(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    elsewhere = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    try:
        bundle_installer.base.mkdir()
        (bundle_installer.base / "roles").symlink_to(elsewhere)
        await bundle_installer.install(repository.url)
        assert (elsewhere / "kind.md").read_text() == "You are kind.\n"
        await bundle_installer.remove("team")
        assert list(elsewhere.iterdir()) == []
        assert (bundle_installer.base / "roles").is_symlink()
    finally:
        shutil.rmtree(elsewhere)


async def test_a_directory_in_the_place_of_a_file_is_an_error(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    (bundle_installer.base / "roles/kind.md").mkdir(parents=True)
    with pytest.raises(Conflict, match=says("work.bundles.transaction._hash_at")):
        await bundle_installer.install(repository.url)


async def test_what_changes_while_a_person_thinks_is_noticed(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    asked = bundle_installer.person

    async def ask(_text: str) -> bool:
        put(bundle_installer.base, {"roles/kind.md": "just written\n"})
        return True

    bundle_installer.__class__ = type(
        "Slow", (BundleInstaller,), {"person": property(lambda _: type(asked)(tell=asked.tell, ask=ask))}
    )
    with pytest.raises(Conflict, match=says("work.bundles.manage.apply_changes")):
        await bundle_installer.install(repository.url)
    assert bundle_installer.files == {"roles/kind.md": "just written\n"}


# --- update, list, remove


async def test_an_update_brings_what_has_changed_and_keeps_what_the_user_has(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    await bundle_installer.install(repository.url)
    put(bundle_installer.base, {"roles/terse.md": "mine\n"})
    tool = BUNDLE["agents/clerk/tools.py"] + '\ndef burn():\n    """Burns."""\n'
    commit = repository.commit(
        {"roles/terse.md": "newer\n", "agents/clerk/tools.py": tool, "roles/new.md": "x\n"}, without=("roles/kind.md",)
    )
    bundle_installer.told.clear()
    done = await bundle_installer.update("team")
    assert done.lines[-1] == "unchanged, because you have edited it: roles/terse.md"
    assert bundle_installer.files["roles/terse.md"] == "mine\n"
    assert "roles/kind.md" not in bundle_installer.files
    assert bundle_installer.files["agents/clerk/tools.py"] == tool
    assert "roles/new.md" in bundle_installer.files
    (told,) = bundle_installer.told
    assert "now also: runs its own programs without asking: tools.py (stamp, burn)" in told
    assert "~ agents/clerk/tools.py (lines: +3 -0)" in told
    assert "removes roles/kind.md" in told
    assert has_message(told, "work.bundles.plan.preview_text", path="roles/terse.md")
    assert has_message(told, "work.bundles.plan._item")
    assert read_manifest(bundle_installer.base).bundles["team"].commit == commit
    assert (await bundle_installer.update("team")).lines == ("team is up to date",)
    assert installed(bundle_installer.base)["team"][1] == ["roles/terse.md"]
    await bundle_installer.update("team", force=True)
    assert bundle_installer.files["roles/terse.md"] == "newer\n"


async def test_an_update_keeps_to_what_was_chosen(bundle_installer: BundleInstaller, repository: Repository) -> None:
    await bundle_installer.install(repository.url, "roles")
    repository.commit({"roles/new.md": "x\n", "macros/new.yaml": "steps: [x]\n"})
    await bundle_installer.update("team")
    assert sorted(bundle_installer.files) == ["roles/kind.md", "roles/new.md", "roles/terse.md"]
    await bundle_installer.install(repository.url, "macros")
    assert "roles/new.md" in bundle_installer.files
    assert "macros/new.yaml" in bundle_installer.files
    assert read_manifest(bundle_installer.base).bundles["team"].filter == ("roles", "macros")


async def test_nothing_is_left_of_a_bundle_that_is_removed_but_what_was_changed(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    put(bundle_installer.base, {"roles/mine.md": "x"})
    await bundle_installer.install(repository.url)
    put(bundle_installer.base, {"macros/greet.yaml": "steps: [mine]\n"})
    bundle_installer.answers = [False]
    assert (await bundle_installer.remove("team")).refused
    done = await bundle_installer.remove("team")
    assert has_message(done.lines[-1], "work.bundles.manage.remove.3", path="macros/greet.yaml")
    assert bundle_installer.files.keys() == {"roles/mine.md", "macros/greet.yaml", "mcp.json"}
    assert entries_of(bundle_installer.files["mcp.json"], "f") == {}
    assert {path.name for path in bundle_installer.base.iterdir()} == {"roles", "macros", "mcp.json", "installed.json"}
    with pytest.raises(NotFound, match=says("work.bundles.manage._known")):
        await bundle_installer.remove("team")


async def test_of_two_bundles_with_one_file_the_last_one_has_it(
    bundle_installer: BundleInstaller, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        put(tmp_path / name, {"roles/kind.md": f"of {name}\n", f"roles/{name}.md": "x\n"})
    await bundle_installer.install("one")
    await bundle_installer.install("two")
    assert "Replace the role kind that you have?" in bundle_installer.asked
    await bundle_installer.remove("one")
    assert bundle_installer.files == {"roles/kind.md": "of two\n", "roles/two.md": "x\n"}


async def test_two_sources_of_one_name_are_two_bundles(bundle_installer: BundleInstaller, tmp_path: Path) -> None:
    put(tmp_path / "a/team", {"roles/a.md": "a\n"})
    put(tmp_path / "b/team", {"roles/b.md": "b\n"})
    await bundle_installer.install("a/team")
    await bundle_installer.install("b/team")
    await bundle_installer.install("a/team")
    assert list(read_manifest(bundle_installer.base).bundles) == ["team", "team-2"]


async def test_what_comes_with_callboard_can_be_laid_out_and_edited(bundle_installer: BundleInstaller) -> None:
    await bundle_installer.install(BUILT_IN, "agents/coder", "roles")
    assert "agents/coder/graph.yaml" in bundle_installer.files
    assert "roles/shell.md" in bundle_installer.files
    put(bundle_installer.base, {"roles/shell.md": "mine\n"})
    done = await bundle_installer.install(BUILT_IN, yes=True)
    assert bundle_installer.files["roles/shell.md"] == "mine\n"
    assert any(has_message(line, "work.bundles.manage._apply", path="roles/shell.md") for line in done.lines)
    assert "agents/sisyphus/config.yaml" in bundle_installer.files


# --- the record


async def test_a_record_that_is_broken_or_names_places_elsewhere_is_refused(
    bundle_installer: BundleInstaller, repository: Repository
) -> None:
    for text in ("{", '{"version": 2, "bundles": {}}'):
        put(bundle_installer.base, {"installed.json": text})
        with pytest.raises(InvalidFile, match=r"installed\.json"):
            await bundle_installer.install(repository.url)
    bundle = {"url": "x", "files": {"../outside": "00"}}
    put(bundle_installer.base, {"installed.json": json.dumps({"bundles": {"x": bundle}})})
    with pytest.raises(InvalidFile, match=says("work.bundles.transaction.read_manifest.4")):
        await bundle_installer.remove("x")


async def test_two_installs_at_a_time_do_not_mix(bundle_installer: BundleInstaller, repository: Repository) -> None:
    async def ask(_text: str) -> bool:
        with pytest.raises(Conflict, match=says("work.bundles.transaction.alone.2")):
            await BundleInstaller.remove(bundle_installer, "team")
        return True

    await bundle_installer.install(repository.url)
    repository.commit({"roles/new.md": "x\n"})
    told = bundle_installer.person
    other = type(told)(tell=told.tell, ask=ask)
    bundle_installer.__class__ = type("Busy", (BundleInstaller,), {"person": property(lambda _: other)})
    await bundle_installer.update("team")
    assert "roles/new.md" in files_below(bundle_installer.base)


async def test_agents_of_aichat_are_taken_with_the_tools_that_they_list(
    bundle_installer: BundleInstaller, tmp_path: Path
) -> None:
    """`llm-functions` lays agents out like this; a `config.yaml` beside it is aichat's, for one machine."""
    files = {
        "agents/coder/index.yaml": "name: Coder\ndescription: Codes.\nversion: 0.1.0\ninstructions: Code.\n",
        "agents/coder/tools.txt": "fs_ls.sh\n# fs_rm.sh\nfs_cat.sh\n",
    }
    put(tmp_path / "functions", files)
    await bundle_installer.install("functions")
    (told,) = bundle_installer.told
    assert "agent coder (new): Codes." in told
    assert "uses tools: fs_ls, fs_cat" in told
    found = load_agent("coder", config_dir=bundle_installer.base)
    assert isinstance(found, LoopAgent)
    assert found.agent.global_tools == ("fs_ls.sh", "fs_cat.sh")
    assert found.problems == ()
    assert agents_in(bundle_installer.base / "agents")("coder") == "found"
    listed = bundle_installer.base / "agents/coder/tools.txt"
    listed.unlink()
    listed.symlink_to("/proc/self/mem")  # a file that can't be read, by root either
    with pytest.raises(InvalidFile, match=says("work.tools.registry.with_listed", file="…tools.txt")):
        load_agent("coder", config_dir=bundle_installer.base)


async def test_a_folder_that_is_elsewhere_is_told(
    bundle_installer: BundleInstaller, repository: Repository, tmp_path: Path
) -> None:
    bundle_installer.environ["LOKI_ROLES_DIR"] = str(tmp_path / "mine")
    await bundle_installer.install(repository.url)
    assert bundle_installer.told[0].startswith(
        f"LOKI_ROLES_DIR sets the directory of roles to {tmp_path / 'mine'}, so files installed into "
    )


async def test_what_tools_of_aichat_share_lies_where_they_look_for_it(
    bundle_installer: BundleInstaller, tmp_path: Path
) -> None:
    """They call `$LLM_ROOT_DIR/utils/guard_operation.sh`; a `utils/` that stands beside no tools is something else."""
    put(tmp_path / "functions", {"tools/ring.sh": TOOL, "utils/guard_operation.sh": "#!/bin/sh\n"})
    await bundle_installer.install("functions")
    assert os.access(bundle_installer.base / "utils/guard_operation.sh", os.X_OK)
    await bundle_installer.remove("functions")
    put(tmp_path / "roles", {"roles/kind.md": "x\n", "utils/build.sh": "x\n"})
    await bundle_installer.install("roles")
    assert bundle_installer.files.keys() == {"roles/kind.md"}
