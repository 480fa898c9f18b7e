"""Exporting as the environment says: real commands, a real receiver, and collectors that are not as they should be."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio
from support.agent_runs import AgentRunner
from support.fake_models import FakeModels, Reply, listening
from support.messages import has_message
from support.starter import CALLBOARD
from support.traced import Collector

import callboard
from callboard.actors.front.telemetry import export
from callboard.actors.front.telemetry.export import exporting

GRAPH = "start: a\nnodes:\n  a: {type: llm, prompt: hi, next: z}\n  z: {type: end, output: the end}\n"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture
async def collector(nursery: trio.Nursery) -> Collector:
    """A collector on loopback."""
    listener, port = listening()
    made = Collector(port)
    nursery.start_soon(made.serve, listener)
    return made


@pytest.fixture
def unheard(agent_runner: AgentRunner) -> callboard.Root:
    """A root that has not begun, with the stage's settings."""
    return callboard.Root(config_dir=agent_runner.config_dir)


async def command(
    model: FakeModels, home: Path, *arguments: str, code: str = "", **environ: str
) -> subprocess.CompletedProcess[str]:
    """`callboard ...` as a process, with these variables and no others of OpenTelemetry's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    config = {"CALLBOARD_CONFIG_DIR": str(model.config_dir(home / "config")), "XDG_STATE_HOME": str(home / "state")}
    program = (sys.executable, "-c", code) if code else CALLBOARD
    with trio.fail_after(60):
        ended = await trio.run_process(
            [*program, *arguments],
            env={**kept, **config, **environ},
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            cwd=home,
        )
    return subprocess.CompletedProcess(ended.args, ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def graph(home: Path) -> str:
    path = home / "g.yaml"
    path.write_text(f"name: g\n{GRAPH}")
    return str(path)


async def test_callboard_run_sends_its_spans_and_metrics_to_a_collector(
    fake_model: FakeModels, collector: Collector, tmp_path: Path
) -> None:
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20mine"}
    ended = await command(
        fake_model, tmp_path, "run", "-q", graph(tmp_path), "PERSONSAID", **{ENDPOINT: collector.url, **headers}
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the end\n", "")
    assert sorted(collector.spans) == ["chat model", "invoke_workflow g", "node a", "node z"]
    assert {"gen_ai.workflow.duration", "gen_ai.client.token.usage"} <= set(collector.metrics)
    assert {(resource["service.name"], resource["service.version"]) for resource in collector.resources} == {
        ("callboard", callboard.__version__)
    }
    assert {sent["authorization"] for sent in collector.headers} == {"Bearer mine"}
    assert not [body for body in collector.bodies if b"PERSONSAID" in body]


async def test_who_is_to_be_named_otherwise_is(fake_model: FakeModels, collector: Collector, tmp_path: Path) -> None:
    variables = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{collector.url}/v1/traces", "OTEL_SERVICE_NAME": "mine"}
    ended = await command(fake_model, tmp_path, "ask", "-q", "well?", **variables)
    assert ended.returncode == 0, ended.stderr
    assert collector.spans == ["chat model", "invoke_agent ask"]
    assert collector.metrics == []
    assert [resource["service.name"] for resource in collector.resources] == ["mine"]


async def test_a_run_that_is_interrupted_is_exported_all_the_same(
    fake_model: FakeModels, collector: Collector, tmp_path: Path
) -> None:
    fake_model.script(Reply(hold=trio.Event()))
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
        "CALLBOARD_CONFIG_DIR": str(fake_model.config_dir(tmp_path / "config")),
        ENDPOINT: collector.url,
    }
    process = await trio.lowlevel.open_process(
        [*CALLBOARD, "run", "-q", graph(tmp_path), "x"], env=environ, stderr=subprocess.PIPE
    )
    with trio.fail_after(60):
        await fake_model.arrived(1)
        process.terminate()
        assert process.stderr is not None
        told = b"".join([chunk async for chunk in process.stderr]).decode()
        assert await process.wait() == 143
    assert "Traceback" not in told
    assert sorted(collector.spans) == ["chat model", "invoke_workflow g", "node a"]


async def test_a_collector_that_is_not_there_costs_a_line_and_no_run(
    fake_model: FakeModels, tmp_path: Path, free_port: int
) -> None:
    variables = {ENDPOINT: f"http://127.0.0.1:{free_port}", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    ended = await command(fake_model, tmp_path, "run", "-q", graph(tmp_path), "x", **variables)
    assert (ended.returncode, ended.stdout) == (0, "the end\n")
    (line,) = ended.stderr.splitlines()
    assert "callboard.telemetry: telemetry is not exported" in line


async def test_a_collector_that_does_not_answer_is_waited_for_only_so_long(
    unheard: callboard.Root,
    agent_runner: AgentRunner,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    collector.silent = True
    monkeypatch.setattr(export, "FLUSH_WITHIN", 0.2)
    monkeypatch.setenv(ENDPOINT, collector.url)  # the SDK reads its own variables from the process
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    agent_runner.agent(GRAPH)
    with caplog.at_level(logging.WARNING, "callboard.telemetry"):
        async with exporting(unheard, dict(os.environ)), unheard:
            assert (await callboard.run("g", "x", root=unheard)).status == "done"
    assert [record.message for record in caplog.records] == [
        "the collector did not accept the last telemetry within 0.2 s; it is lost"
    ]
    with trio.fail_after(60):  # its threads are no longer waited for, and end by themselves: not in another test's time
        while any(thread.name.startswith("Otel") for thread in threading.enumerate()):
            await trio.sleep(0.05)
    quiet = logging.getLogger("opentelemetry")
    quiet.handlers, quiet.propagate = [], True


async def test_without_the_package_a_line_says_so_and_the_run_goes_on(fake_model: FakeModels, tmp_path: Path) -> None:
    missing = tmp_path / "path" / "opentelemetry"
    missing.mkdir(parents=True)
    (missing / "__init__.py").write_text("raise ModuleNotFoundError('No module named opentelemetry')\n")
    variables = {ENDPOINT: "http://127.0.0.1:9", "PYTHONPATH": str(tmp_path / "path")}
    ended = await command(fake_model, tmp_path, "run", "-q", graph(tmp_path), "x", **variables)
    assert (ended.returncode, ended.stdout) == (0, "the end\n")
    (line,) = ended.stderr.splitlines()
    assert has_message(line, "front.telemetry.export._missing")


LOADED = """
import sys
from callboard.cli.main import run
try:
    code = run(sys.argv[1:])
except SystemExit as exit:
    code = exit.code
print(code, [name for name in sys.modules if name.startswith(("opentelemetry", "google.protobuf", "requests"))])
"""


@pytest.mark.parametrize("arguments", [("--help",), ("run", "-q", "g.yaml", "x")], ids=["help", "run"])
async def test_who_asks_for_nothing_imports_nothing(
    fake_model: FakeModels, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    graph(tmp_path)
    ended = await command(fake_model, tmp_path, *arguments, code=LOADED)
    assert ended.stdout.splitlines()[-1] == "0 []", ended.stderr


async def test_the_console_is_stderr_so_that_stdout_is_the_result(fake_model: FakeModels, tmp_path: Path) -> None:
    variables = {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"}
    ended = await command(fake_model, tmp_path, "run", "-q", graph(tmp_path), "x", **variables)
    assert (ended.returncode, ended.stdout) == (0, "the end\n")
    assert '"name": "invoke_workflow g"' in ended.stderr
    assert "gen_ai.workflow.duration" in ended.stderr


async def test_what_the_sdk_can_not_make_sense_of_costs_a_line_and_no_run(
    unheard: callboard.Root,
    agent_runner: AgentRunner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    agent_runner.agent(GRAPH)
    with caplog.at_level(logging.WARNING, "callboard.telemetry"):
        async with exporting(unheard, {"OTEL_TRACES_EXPORTER": "otlp"}), unheard:
            assert (await callboard.run("g", "x", root=unheard)).status == "done"
    (record,) = caplog.records
    assert record.message.startswith("OpenTelemetry can't be set up")


async def test_trouble_is_told_once_without_secrets_and_the_log_is_put_back(
    unheard: callboard.Root, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "a-very-secret-key")
    theirs = logging.getLogger("opentelemetry")
    before = (theirs.handlers, theirs.propagate)
    environ = {"OTEL_TRACES_EXPORTER": "console", **os.environ}
    with caplog.at_level(logging.WARNING, "callboard.telemetry"):
        async with exporting(unheard, environ), unheard:
            for _ in range(3):
                logging.getLogger("opentelemetry.x").error("refused: a-very-secret-key")
    assert [record.message for record in caplog.records] == ["telemetry is not exported: refused: [redacted]"]
    assert (theirs.handlers, theirs.propagate) == before


def test_who_wants_no_telemetry_imports_none() -> None:
    code = (
        "import os, sys, trio, callboard\n"
        "from callboard.actors.front.telemetry.export import exporting\n"
        "async def main():\n"
        "    root = callboard.Root()\n"
        "    async with exporting(root, {}), root:\n"
        "        pass\n"
        "trio.run(main)\n"
        "print(*(name for name in sys.modules if name.startswith('opentelemetry')))"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    assert subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True).stdout == "\n"
