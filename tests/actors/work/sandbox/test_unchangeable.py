"""Changes by our own tools of what processes in the sandbox may not change."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.fake_models import FakeModels, Reply
from support.messages import has_message

import callboard
from callboard.actors.work.sandbox.protected_paths import OF_GIT, OF_PROGRAMS, OF_SECRETS, why_unchangeable

NOBODY = "work.sandbox.protected_paths.nobody_to_ask"

AGENT = "name: a\nglobal_tools: [fs_write, fs_patch, fs_mkdir, fs_rm]\n"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    made = home / "work"
    made.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", made], check=True)
    subprocess.run(["git", "init", "-q", f"--separate-git-dir={made}/data", made / "apart"], check=True)
    subprocess.run(["git", "init", "-q", "--bare", made / "bare.git"], check=True)
    (made / ".env").write_text("SECRET=1\n")
    (made / "link").symlink_to(".git")
    (home / ".bashrc").write_text("true\n")
    (made / ".git/info").mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(made)
    return made


CALLS = [
    ("fs_write", {"path": ".git/config", "contents": "x"}),
    ("fs_write", {"path": ".git/commondir", "contents": "x"}),
    ("fs_write", {"path": ".git/hooks/pre-commit", "contents": "x"}),
    ("fs_write", {"path": ".git/index", "contents": "x"}),
    ("fs_write", {"path": "link/info/attributes", "contents": "x"}),
    ("fs_write", {"path": "sub/../.git/config.worktree", "contents": "x"}),
    ("fs_write", {"path": "data/config", "contents": "x"}),
    ("fs_write", {"path": "apart/.git", "contents": "gitdir: x"}),
    ("fs_write", {"path": "bare.git/hooks/update", "contents": "x"}),
    ("fs_write", {"path": "new/.git", "contents": "gitdir: x"}),
    ("fs_mkdir", {"path": ".git/modules/x"}),
    ("fs_rm", {"path": ".git/hooks"}),
    ("fs_rm", {"path": ".git"}),
    ("fs_write", {"path": ".env", "contents": "x"}),
    ("fs_rm", {"path": ".env"}),
]


def state(top: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(top.rglob("*"))}


@pytest.mark.parametrize(("tool", "arguments"), CALLS, ids=[f"{tool} {each['path']}" for tool, each in CALLS])
@pytest.mark.sample(6)
async def test_is_not_made_without_a_question_whatever_was_allowed(
    tmp_path: Path, fake_model: FakeModels, workspace: Path, tool: str, arguments: dict[str, str]
) -> None:
    config = fake_model.config_dir(tmp_path / "config")
    (config / "agents/a").mkdir(parents=True)
    (config / "agents/a/config.yaml").write_text(AGENT)
    before = state(workspace)
    fake_model.script(Reply(calls=[(tool, arguments)]), Reply(text="over"))
    outcome = await callboard.run("a", "go", config_dir=config, yes=True, allow=[tool], sandbox="workspace")
    assert outcome.status == "done", outcome.error
    assert has_message(str(fake_model.requests[-1].json["messages"][-1]["content"]), NOBODY, tool=tool)
    assert state(workspace) == before


@pytest.mark.parametrize(
    ("sandbox", "path"), [("off", ".git/info/x"), ("workspace", "src/x"), ("workspace", ".github/x")]
)
async def test_other_files_are_written_as_before(
    tmp_path: Path, fake_model: FakeModels, workspace: Path, sandbox: str, path: str
) -> None:
    config = fake_model.config_dir(tmp_path / "config")
    (config / "agents/a").mkdir(parents=True)
    (config / "agents/a/config.yaml").write_text(AGENT)
    fake_model.script(Reply(calls=[("fs_write", {"path": path, "contents": "mine"})]), Reply(text="over"))
    await callboard.run("a", "go", config_dir=config, yes=True, sandbox=sandbox)
    assert (workspace / path).read_text() == "mine"


def test_reasons(tmp_path: Path, workspace: Path) -> None:
    home = tmp_path / "home"
    config = tmp_path / "config"
    (config / "agents").mkdir(parents=True)
    (home / ".ssh").mkdir()

    def why(path: Path, *shown: str) -> str:
        return why_unchangeable([str(path)], home=home, config_dir=config, environ={}, shown=shown)

    assert why(workspace / ".GIT/config") == OF_GIT
    assert why(home / ".bashrc") == OF_PROGRAMS
    assert why(config / "agents/new") == OF_PROGRAMS
    assert why(home / ".ssh/authorized_keys") == OF_SECRETS
    assert why(workspace / ".env") == OF_SECRETS
    assert why(workspace / ".env", str(workspace / ".env")) == ""
    assert why(workspace / ".env.example") == ""
    assert why(workspace / "new" / ".env") == ""
    assert why(workspace / "src" / "x") == ""
    shutil.rmtree(home / ".ssh")


def test_a_workspace_in_the_hidden_part_of_a_home_directory_is_changed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    ours = home / ".config" / "editor"
    ours.mkdir(parents=True)
    paths = {"home": home, "config_dir": tmp_path / "config", "environ": {}, "shown": ()}
    assert why_unchangeable([str(ours / "x")], **paths, workspaces=[str(ours)]) == ""  # type: ignore[arg-type] - as named
    assert why_unchangeable([str(home / ".config" / "x")], **paths) != ""  # type: ignore[arg-type] - as named


SHOWS = "name: a\nglobal_tools: [fs_cat, fs_read, fs_grep]\n"
SECRETS = (".env", "sub/.env.local", "prod.env", "../.ssh/id", "../.unknown/token", "link-to-secret")


@pytest.mark.parametrize("tool", ["fs_cat", "fs_read", "fs_grep"])
async def test_a_secret_is_not_shown_without_a_question_whatever_was_allowed(
    tmp_path: Path, fake_model: FakeModels, workspace: Path, tool: str
) -> None:
    config = fake_model.config_dir(tmp_path / "config")
    (config / "agents/a").mkdir(parents=True)
    (config / "agents/a/config.yaml").write_text(SHOWS)
    for name in SECRETS[:-1]:
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("the-secret\n")
    (workspace / "link-to-secret").symlink_to(workspace.parent / ".ssh/id")
    (workspace / "plain.txt").write_text("no-secret, the-other\n")
    (workspace / ".env.example").write_text("the-example\n")
    more = {"pattern": "the-"} if tool == "fs_grep" else {}
    for name in SECRETS:
        fake_model.script(Reply(calls=[(tool, {"path": name, **more})]), Reply(text="over"))
        outcome = await callboard.run("a", "go", config_dir=config, yes=True, allow=[tool], sandbox="workspace")
        assert outcome.status == "done", outcome.error
        read = str(fake_model.requests[-1].json["messages"][-1]["content"])
        assert "the-secret" not in read, name
        assert has_message(read, NOBODY, tool=tool), name
    for name, shown in (("plain.txt", "the-other"), (".env.example", "the-example")):
        fake_model.script(Reply(calls=[(tool, {"path": name, **more})]), Reply(text="over"))
        await callboard.run("a", "go", config_dir=config, yes=True, sandbox="workspace")
        assert shown in str(fake_model.requests[-1].json["messages"][-1]["content"])
    if tool == "fs_grep":
        fake_model.script(Reply(calls=[(tool, {"path": ".", **more})]), Reply(text="over"))
        await callboard.run("a", "go", config_dir=config, yes=True, sandbox="workspace")
        read = str(fake_model.requests[-1].json["messages"][-1]["content"])
        assert "the-other" in read
        assert "the-secret" not in read
