"""Files that processes could read and hosts that they could reach, by the rules of their sandbox alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from callboard.actors.work.sandbox import backends, exposure
from callboard.actors.work.sandbox.exposure import UNBOUNDED, Exposure
from callboard.actors.work.sandbox.grants import REACH, Grants, Who
from callboard.actors.work.sandbox.run_sandbox import Sandbox, rules_of
from callboard.protocol.sandbox import SandboxRules, UserSandbox


class Machine:
    """A home directory and a workspace in it; whatever else the machine has is hidden from the search.

    Attributes:
        grants: of the run.
    """

    def __init__(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = base / "home"
        self.workspace = self.home / "work" / "project"
        self.config = base / "config"
        for directory in (self.workspace, self.config):
            directory.mkdir(parents=True)
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        others = frozenset(path.name for path in Path("/").iterdir() if path.name != "tmp")
        monkeypatch.setattr(exposure, "SYSTEM", others)
        monkeypatch.setattr(exposure, "_not_for_all", lambda directory, hidden: "")
        monkeypatch.setattr(exposure, "FOUND_FOR", 0.0)
        monkeypatch.setattr(exposure, "USED_FOR", 0)
        self.backend(monkeypatch, "bubblewrap")
        self.grants = Grants(None, None)

    def backend(self, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
        """Have this one hold processes."""
        backend = backends.Backend(kind=kind)  # type: ignore[arg-type] # a text
        monkeypatch.setitem(backends._KNOWN, os.environ.get(backends.VARIABLE, ""), backend)

    async def exposure(self, name: str = "execute_command", *, server: bool = False, **rules: object) -> Exposure:
        """That of processes of a tool under these rules."""
        said = rules_of(UserSandbox(**rules), None)  # type: ignore[arg-type] # the tests name its fields
        sandbox = Sandbox(
            said, here=self.workspace, config_dir=self.config, environ=os.environ, temporary=None, grants=self.grants
        )
        return await sandbox.exposure(name, (os.path.realpath(self.workspace),), server=server)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


async def test_a_workspace_without_private_paths_exposes_nothing(machine: Machine) -> None:
    assert await machine.exposure(network="off") == Exposure()


@pytest.mark.parametrize("name", ["notes/diary.txt", "work/other/a.txt", "letter", "work/a.txt"])
async def test_what_a_home_holds_besides_is_private_until_it_is_hidden(machine: Machine, name: str) -> None:
    file = machine.home / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    assert (await machine.exposure()).reads
    assert not (await machine.exposure(hide=("~",))).reads
    assert not (await machine.exposure(hide=(str(file),))).reads


@pytest.mark.parametrize("name", [".ssh/id_rsa", ".newprogram/token", ".config/x/y", ".netrc"])
async def test_hidden_files_of_a_home_are_no_private_path(machine: Machine, name: str) -> None:
    file = machine.home / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    assert not (await machine.exposure()).reads


@pytest.mark.parametrize(
    ("name", "private"),
    [
        ("key.pem", True),
        ("deploy/tls.KEY", True),
        ("a/b/credentials.json", True),
        ("secrets/any.txt", True),
        ("terraform.tfstate", True),
        (".env", False),
        ("a/prod.env", False),
        ("key.pem.example", False),
        ("src/a.py", False),
        ("node_modules/x/test.pem", False),
        (".venv/lib/site-packages/certifi/cacert.pem", False),
    ],
)
async def test_secrets_of_the_workspace_go_by_their_names(machine: Machine, name: str, *, private: bool) -> None:
    """Files of variables are hidden by bubblewrap, and not by Landlock."""
    file = machine.workspace / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    assert bool((await machine.exposure()).reads) == private
    assert not (await machine.exposure(hide=(name, "secrets"))).reads


async def test_landlock_hides_no_files_of_variables(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.backend(monkeypatch, "landlock")
    (machine.workspace / ".env").write_text("x")
    assert (await machine.exposure()).reads
    assert (await machine.exposure(network=("pypi.org",))).reaches == "nothing"


async def test_a_secret_that_git_has_is_private_though_its_file_is_hidden(machine: Machine) -> None:
    index = machine.workspace / ".git" / "index"
    index.parent.mkdir()
    index.write_bytes(b"DIRC\0\0\0\2\0\0\0\1" + bytes(62) + b"deploy/key.pem\0\0\0")
    (machine.workspace / "deploy").mkdir()
    (machine.workspace / "deploy" / "key.pem").write_text("x")
    assert (await machine.exposure(hide=("deploy",))).reads


async def test_a_directory_that_may_be_written_is_there_though_its_home_is_hidden(machine: Machine) -> None:
    (machine.home / "data").mkdir()
    (machine.home / "data" / "x").write_text("x")
    assert not (await machine.exposure(hide=("~",))).reads
    assert (await machine.exposure(hide=("~",), write=("~/data",))).reads


@pytest.mark.parametrize(
    ("network", "reaches"),
    [
        (None, "listed"),
        ("ask", "listed"),
        ("off", "nothing"),
        ("on", "anything"),
        (("pypi.org", "*.python.org"), "listed"),
        (("*",), "anything"),
        (("pypi.org", "*.org"), "anything"),
        (("localhost:8080",), "listed"),
    ],
)
async def test_hosts_that_a_process_reaches(machine: Machine, network: object, reaches: str) -> None:
    assert (await machine.exposure(network=network)).reaches == reaches


async def test_rules_and_grants_for_all_hosts_count(machine: Machine) -> None:
    class Rules:
        def of_host(self, host: str, port: int) -> tuple[str, str] | None:
            del port
            return ("allow", "*.net") if host.endswith(".net") else None

    machine.grants = Grants(Rules(), None)  # type: ignore[arg-type] # verdicts are plain texts here
    assert (await machine.exposure()).reaches == "anything"
    machine.grants = Grants(None, None)
    machine.grants._of_run[Who("execute_command", "x")].append(REACH + "*")
    assert (await machine.exposure()).reaches == "anything"
    assert (await machine.exposure("other")).reaches == "listed"


@pytest.mark.parametrize(
    "rules", [{"profile": "off"}, {"profile": "open"}, {"tools": {"execute_*": SandboxRules(profile="off")}}]
)
async def test_a_process_without_bounds_reads_and_reaches_everything(
    machine: Machine, rules: dict[str, object]
) -> None:
    assert await machine.exposure(**rules) == UNBOUNDED


async def test_no_backend_means_no_bounds(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user may have the process start without a sandbox."""
    machine.backend(monkeypatch, "none")
    assert await machine.exposure(network="off") == UNBOUNDED


async def test_servers_have_a_network_unless_something_is_said(machine: Machine) -> None:
    assert (await machine.exposure("s", server=True)).reaches == "anything"
    assert (await machine.exposure("s", server=True, network="off")).reaches == "nothing"
    assert (await machine.exposure("s", server=True, network=("api.example",))).reaches == "listed"
