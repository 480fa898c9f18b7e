"""A secret of the vault reaches whom it is for, and stands in nothing that is written, sent, shown or kept.

Agents run with one in a client's key, in a server's environment, in a tool's, and with a provider and a server that
quote it in their errors. tests/support/secret_watch.py looks through what they have logged besides.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.starter import CALLBOARD

import callboard
from callboard.actors.front.control.methods import open_hub
from callboard.actors.io.secret_redaction import PUT, without_secrets
from callboard.actors.io.vault.file import VaultFile
from callboard.actors.io.vault.keys import IdentityFile
from callboard.protocol.errors import CallboardError, ConfigError, CredentialsError
from callboard.protocol.events import Event, LlmDelta, LlmReasoning

KEY, TOKEN, TOOL = "s3cret-key-of-the-client", "s3cret/token+of=the server", "s3cret-of-the-tool"
SERVER = Path(__file__).parents[1] / "work" / "mcp" / "servers" / "scripted.py"
SECRETS = {"CLIENT_KEY": KEY, "SERVER-TOKEN": TOKEN, "TOOL_SECRET": TOOL}


class VaultSetup:
    """A config directory with a vault, a client, a server and an agent, each of which names a secret."""

    def __init__(self, models: FakeModels, directory: Path) -> None:
        self.models = models
        self.config = directory / "config"
        self.state = directory / "state"
        self.config.mkdir()
        client = {
            "type": "openai-compatible",
            "name": "lab",
            "api_base": models.openai_base,
            "api_key": "{{CLIENT_KEY}}",
        }
        self.settings: dict[str, Any] = {"model": "lab:m", "clients": [client], "permissions": {"*": "allow"}}
        self.write()
        server = {"command": sys.executable, "args": ["-S", str(SERVER)], "env": {"TOKEN": "{{SERVER-TOKEN}}"}}
        (self.config / "mcp.json").write_text(json.dumps({"mcpServers": {"srv": server}}))
        home = self.config / "agents" / "worker"
        home.mkdir(parents=True)
        (home / "config.yaml").write_text(
            "name: worker\ninstructions: 'Work with {{secret}}.'\nmcp_servers: [srv]\n"
            "variables:\n  - {name: secret, description: d, default: '{{TOOL_SECRET}}'}\n"
        )
        (home / "tools.sh").write_text(
            "#!/usr/bin/env bash\n# @cmd Tell it\ntell() {\n"
            f'  ps -eo args > "{directory}/ps.txt"\n  printf %s "$LLM_AGENT_VAR_SECRET" > "{directory}/got.txt"\n'
            '  echo "told: $LLM_AGENT_VAR_SECRET" >> "$LLM_OUTPUT"\n}\n'
            '# @cmd Fail over it\nfail() {\n  echo "wrong: $LLM_AGENT_VAR_SECRET" >&2\n  exit 3\n}\n'
        )
        (home / "tools.sh").chmod(0o755)
        self.keep(**SECRETS)

    def write(self) -> None:
        (self.config / "config.yaml").write_text(json.dumps(self.settings))

    def keep(self, **values: str) -> None:
        identity = IdentityFile(self.state / "callboard" / "vault" / "identity.txt")
        VaultFile(self.config / "vault.age", identity).change(lambda secrets: secrets.update(values))


@pytest.fixture
def vault_setup(fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VaultSetup:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return VaultSetup(fake_model, tmp_path)


def parts(secret: str) -> list[str]:
    return [secret, json.dumps(secret)[1:-1]]


def found_in(text: str) -> list[str]:
    return [secret for secret in SECRETS.values() if any(part in text for part in parts(secret))]


def written_below(directory: Path, *but: str) -> list[str]:
    """The files below a directory that hold a secret."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name not in but]
    return [str(path) for path in files if found_in(path.read_bytes().decode("utf-8", "replace"))]


CALLS = (
    Reply(calls=[("tell", {})]),
    Reply(calls=[("srv__env", {"name": "TOKEN"})]),
    Reply(calls=[("fail", {})]),
    Reply(calls=[("srv__echo", {"text": "hello"})]),
)


def quoting(request: Request) -> Reply:
    """A provider that refuses the key and says which."""
    return Reply(status=400, error=f"the key {request.headers['authorization']} is no good")


async def test_agents_use_secrets_that_nothing_tells(
    vault_setup: VaultSetup, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Event] = []
    with caplog.at_level(logging.DEBUG, logger="callboard"):
        async with callboard.Root(config_dir=vault_setup.config) as root:
            vault_setup.models.script(*CALLS, "done")
            outcome = await callboard.run("worker", "go", root=root, on_event=events.append)
            assert outcome.status == "done", outcome.error
            vault_setup.models.answer_with(quoting)
            failed = await callboard.run("worker", "go", root=root, on_event=events.append)
            assert failed.status == "failed"
    # whom they are for has them
    assert {request.headers["authorization"] for request in vault_setup.models.requests} == {f"Bearer {KEY}"}
    assert (tmp_path / "got.txt").read_text() == TOOL
    results = vault_setup.models.requests[4].results
    assert [PUT in result for result in results] == [True, True, True, False], results
    assert "{{TOOL_SECRET}}" in vault_setup.models.requests[0].system
    # and no other
    assert found_in("".join(request.body.decode() for request in vault_setup.models.requests)) == []
    assert found_in("".join(msgspec.json.encode(event).decode() for event in events)) == []
    assert found_in(json.dumps([outcome.to_wire(), failed.to_wire()])) == []
    assert failed.error is not None
    assert PUT in failed.error.message
    assert found_in((tmp_path / "ps.txt").read_text()) == []
    assert found_in(caplog.text) == []
    assert written_below(tmp_path, "got.txt") == []


@pytest.mark.parametrize("piece", [1, 3, 7])
async def test_a_model_that_repeats_a_secret_in_pieces_tells_nothing(
    vault_setup: VaultSetup, tmp_path: Path, piece: int
) -> None:
    """Nor does a reply that is cut off in the middle of one."""
    events: list[Event] = []
    said = f"It is {TOOL}, and {KEY}. The end"
    thinks = f"Hm: {TOKEN}"
    async with callboard.Root(config_dir=vault_setup.config) as root:
        vault_setup.models.script(
            CALLS[1],
            Reply(said, reasoning=thinks, piece=piece, drop="middle"),
            Reply(said, reasoning=thinks, piece=piece),
            Reply(said[:20], piece=piece),
        )
        outcome = await callboard.run("worker", "go", root=root, on_event=events.append)
        assert outcome.output == f"It is {PUT}, and {PUT}. The end"
        await callboard.run("worker", "go", root=root, on_event=events.append)
    deltas = [event.data for event in events if isinstance(event.data, LlmDelta)]
    told = "".join(delta.text for delta in deltas)
    assert f"It is {PUT}, and {PUT}. The end" in told
    assert found_in(told) == []
    assert found_in("".join(event.data.text for event in events if isinstance(event.data, LlmReasoning))) == []
    assert found_in("".join(msgspec.json.encode(event).decode() for event in events)) == []
    assert written_below(tmp_path) == []


async def test_servers_and_their_logs_tell_nothing(vault_setup: VaultSetup, tmp_path: Path) -> None:
    async with callboard.Root(config_dir=vault_setup.config, keep_servers=True) as root, open_hub(root):
        vault_setup.models.script(*CALLS, "done")
        told: list[bytes] = []
        with root.bus.listen(lambda event: told.append(msgspec.json.encode(event))):
            outcome = await callboard.run("worker", "go", root=root)
            assert outcome.status == "done"
        assert found_in(b"".join(told).decode()) == []
        assert found_in(repr(root.settings)) == []
        assert found_in(msgspec.json.encode([*root.settings.clients]).decode()) == []
    assert written_below(tmp_path, "got.txt") == []


@pytest.mark.parametrize("output", ["json", "stream-json"])
async def test_the_command_line_tells_nothing(vault_setup: VaultSetup, tmp_path: Path, output: str) -> None:
    vault_setup.models.script(*CALLS, "done")
    vault_setup.models.answer_with(quoting)
    environ = {**os.environ, "CALLBOARD_LOG": "trace", "CALLBOARD_CONFIG_DIR": str(vault_setup.config)}
    command = [*CALLBOARD, "run", "worker", "go", "-v", "-o", output, "-s", "mine"]
    for code in (0, 1):
        done = await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, env=environ, stdin=subprocess.DEVNULL, check=False
        )
        told = (done.stdout + done.stderr).decode()
        assert done.returncode == code, told
        assert found_in(told) == []
    assert PUT in told
    assert written_below(tmp_path, "got.txt") == []


async def test_a_missing_secret_names_file_key_and_command(vault_setup: VaultSetup) -> None:
    vault_setup.settings["clients"][0]["api_key"] = "{{NO_SUCH}}"
    vault_setup.write()
    async with callboard.Root(config_dir=vault_setup.config) as root:
        with pytest.raises(CredentialsError) as error:
            await callboard.run("worker", "go", root=root)
    assert str(error.value) == (
        f"client 'lab' in {vault_setup.config / 'config.yaml'}: `api_key` needs {{{{NO_SUCH}}}}, which is not in the "
        "vault or the environment; add it: callboard vault add NO_SUCH"
    )
    assert error.value.exit_code == 3


async def test_a_server_without_its_secret_costs_its_own_tools(vault_setup: VaultSetup) -> None:
    entry = {"command": sys.executable, "args": ["-S", str(SERVER)], "env": {"TOKEN": "{{NO_SUCH}}"}}
    (vault_setup.config / "mcp.json").write_text(json.dumps({"mcpServers": {"srv": entry}}))
    events: list[Event] = []
    vault_setup.models.script("done")
    async with callboard.Root(config_dir=vault_setup.config) as root:
        outcome = await callboard.run("worker", "go", root=root, on_event=events.append)
        assert outcome.status == "done"
        with pytest.raises(ConfigError, match=r"`env\.TOKEN` needs \{\{NO_SUCH\}\}, .*callboard vault add NO_SUCH"):
            root.mcp.leases.key("srv")


async def test_a_command_gives_what_agents_need_once(vault_setup: VaultSetup, tmp_path: Path) -> None:
    script = tmp_path / "give.py"
    script.write_text(
        f"import sys\nopen({str(tmp_path / 'asked')!r}, 'a').write(sys.argv[1] + '\\n')\n"
        f"print({SECRETS!r}[sys.argv[1]])\n"
    )
    vault_setup.settings["vault"] = {"command": f"{sys.executable} {script} {{name}}"}
    vault_setup.write()
    (vault_setup.config / "vault.age").unlink()
    vault_setup.models.answer_with(lambda request: CALLS[len(request.results)] if len(request.results) < 4 else "done")
    async with callboard.Root(config_dir=vault_setup.config) as root, trio.open_nursery() as nursery:

        async def run() -> None:
            outcome = await callboard.run("worker", "go", root=root)
            assert outcome.status == "done", outcome.error

        for _ in range(10):
            nursery.start_soon(run)
    script.unlink()  # which has the secrets in it
    assert sorted((tmp_path / "asked").read_text().split()) == sorted(SECRETS)
    assert {request.headers["authorization"] for request in vault_setup.models.requests} == {f"Bearer {KEY}"}
    assert written_below(tmp_path, "got.txt") == []


async def test_a_command_that_fails_ends_the_run_with_its_words(vault_setup: VaultSetup) -> None:
    vault_setup.settings["vault"] = {"command": "sh -c 'echo locked >&2; exit 1' {name}"}
    vault_setup.write()
    async with callboard.Root(config_dir=vault_setup.config) as root:
        with pytest.raises(CallboardError, match=r"failed \(status 1\): locked"):
            await callboard.run("worker", "go", root=root)
        agent = callboard.Agent(name="a", instructions="i")
        outcome = await callboard.run(agent, "go", root=root)  # it begins without a thread, and so without waiting
        assert outcome.error is not None
        assert outcome.error.message.endswith("failed (status 1): locked")


async def test_what_a_stranger_describes_gets_no_secret(vault_setup: VaultSetup, tmp_path: Path) -> None:
    """A workflow's own client, at an address of its own, with `{{NAME}}` for a key."""
    flow = {
        "graph": {
            "id": "g",
            "nodes": [
                {
                    "id": "a",
                    "type": "agent",
                    "config": {
                        "provider": "mine",
                        "base_url": vault_setup.models.openai_base,
                        "api_key": "{{CLIENT_KEY}}",
                        "name": "m",
                        "role": "r",
                    },
                }
            ],
            "edges": [],
        }
    }
    path = tmp_path / "flow.yaml"
    path.write_text(json.dumps(flow))
    async with callboard.Root(config_dir=vault_setup.config) as root:
        await callboard.run(path, "go", root=root)
    assert [request.headers["authorization"] for request in vault_setup.models.requests] == ["Bearer {{CLIENT_KEY}}"]


def test_what_holds_no_secret_stays_the_same_object() -> None:
    value = {"a": ["b", ("c", 1, None)]}
    assert without_secrets(value) is value


async def test_rows_of_durable_runs_have_no_secrets_and_the_run_goes_on_without_them(
    vault_setup: VaultSetup, tmp_path: Path
) -> None:
    async with callboard.Root(config_dir=vault_setup.config) as root:
        vault_setup.models.script(*CALLS, f"you said {TOOL}")
        outcome = await callboard.run("worker", f"go with {TOOL}", root=root, durable=True, id="run-1")
        assert outcome.status == "done", outcome.error
    assert any(path.suffix == ".db" for path in (tmp_path / "state").rglob("*")), "it was kept"
    assert written_below(tmp_path, "got.txt", "ps.txt") == []
