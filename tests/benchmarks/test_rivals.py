"""The rivals of the benchmarks are installed as `make bench-rivals` says, and every one of them answers."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from harness.contender import RIVALS, Contender  # noqa: E402 - found through the line above

SCRIPTS = {
    "pykka": "kernel_pykka",
    "autogen": "kernel_autogen",
    "xoscar": "kernel_xoscar",
    "langgraph": "graph_langgraph",
    "openai": "agents_openai",
    "langchain": "knowledge_langchain",
    "haystack": "knowledge_haystack",
}


PEERS = RIVALS.parents[2] / "agents/bin/python"


@pytest.mark.full
@pytest.mark.skipif(not PEERS.exists(), reason="`make bench-rivals` has not been run")
@pytest.mark.parametrize("name", ["pydantic_ai", "openai_agents", "langgraph"])
def test_a_framework_has_all_that_it_needs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_URL", "http://127.0.0.1:1/v1")
    with Contender(name, f"embedding_{name}", python=str(PEERS)) as contender:
        assert contender.missing == ""
        assert contender.cases == {"at_once"}


@pytest.mark.full
@pytest.mark.skipif(not RIVALS.exists(), reason="`make bench-rivals` has not been run")
@pytest.mark.parametrize(("name", "script"), SCRIPTS.items())
def test_a_rival_has_all_that_it_needs(name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("BENCH_URL", "BENCH_URL_SLOW"):  # where the fake server of benchmarks/agents.py would be
        monkeypatch.setenv(variable, "http://127.0.0.1:1/v1")
    with Contender(name, script) as contender:
        assert contender.missing == ""
        assert contender.cases


def test_rivals_are_pinned_apart_from_our_own_environment() -> None:
    """What one of them pins (protobuf 5) and what OpenTelemetry pins (7) can't be had together."""
    files = [ROOT / f"requirements/interop/{name}.lock" for name in ("rivals", "agents")]
    pins = [line for file in files for line in file.read_text().splitlines() if "==" in line]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in pins)
    ours = (ROOT / "requirements/dev.lock").read_text()
    assert "autogen-core" not in ours
