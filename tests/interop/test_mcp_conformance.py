"""The MCP conformance suite, both versions, in both directions: expected failures are in conformance/expected.yaml.

The suite plays the other side. For our client it starts `clients/mcp_conformance.py` once per scenario; our server is
`mcp serve` over HTTP with the graphs of conformance/agents, which have the names and answers that the suite expects.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml
from interop.environments import HERE, INSTALLED, needs

from callboard import Root
from callboard.actors.front.mcp_server.service import ServiceOptions, read_agents
from callboard.actors.front.mcp_server.serving import serve_http

pytestmark = needs("node")

NODE = INSTALLED / "node/node_modules"
SUITES = {"0.1.16": NODE / "mcp-conformance-dated", "2026-07-28": NODE / "mcp-conformance"}
CLIENT = HERE / "clients/mcp_conformance.py"
EXPECTED = yaml.safe_load((HERE / "conformance/expected.yaml").read_text())
WITHIN = 900.0
"""Seconds for all scenarios of a suite; the suite itself allows a client a minute for each."""

AT_ONCE = 4
OPTIONS = {"0.1.16": [], "2026-07-28": ["--spec-version", "2026-07-28"]}


async def suite(version: str, *args: str | Path) -> str:
    """Run the suite; what it prints. Its exit status says only whether all passed."""
    command = [str(NODE / "node/bin/node"), str(SUITES[version] / "dist/index.js"), *map(str, args)]
    env = {**os.environ, "PYTHONPATH": str(HERE.parent), "NO_COLOR": "1"}
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False, env=env)
    return done.stdout.decode() + done.stderr.decode()


def failures(directory: Path) -> dict[str, list[str]]:
    """The scenarios that were run and what failed in each: the ids and messages of its checks."""
    found: dict[str, list[str]] = {}
    for file in directory.rglob("checks.json"):
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", str(file.parent.relative_to(directory)))
        checks = json.loads(file.read_text())
        failed = [f"{each['id']}: {each.get('errorMessage')}" for each in checks if each["status"] == "FAILURE"]
        found[name.removeprefix("server-")] = failed
    return found


def check(version: str, direction: str, found: dict[str, list[str]], every: Iterable[str]) -> None:
    """Exactly the expected ones fail, and for the reason that is written there."""
    expected: dict[str, str] = EXPECTED[f"{direction} {version}"]
    assert set(found) >= set(every), "not all scenarios were run"
    failed = {name: why for name, why in found.items() if name in set(every) and why}
    assert failed.keys() == expected.keys(), json.dumps(failed, indent=1)
    for name, reason in expected.items():
        if method := re.match(r"`([a-zA-Z/]+)`", reason):
            assert all("Method not found" in why for why in failed[name]), (name, method[1], failed[name])
            assert any(method[1] in why for why in failed[name]), (name, method[1], failed[name])


def listed(text: str, heading: str) -> list[str]:
    """The scenarios below a heading of `list`."""
    block = text.partition(heading)[2].partition("\n\n")[0]
    return re.findall(r"^  - (\S+)", block, re.MULTILINE)


async def scenarios(version: str, heading: str) -> list[str]:
    args = [] if version == "0.1.16" else ["--requirements", version]
    found = listed(await suite(version, "list", *args), heading)
    assert len(found) > 20
    return found


@pytest.mark.full
@pytest.mark.timeout(WITHIN + 60)
@pytest.mark.parametrize("version", SUITES)
async def test_our_client_passes_the_suite_but_for_what_is_expected(version: str, tmp_path: Path) -> None:
    names = await scenarios(version, "Client scenarios")
    places = trio.Semaphore(AT_ONCE)

    async def run(name: str) -> None:
        async with places:
            command = f"{sys.executable} {CLIENT}"
            await suite(
                version, "client", "--command", command, "--scenario", name, *OPTIONS[version],
                "--timeout", "60000", "-o", tmp_path,
            )  # fmt: skip

    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(run, name)
    found = failures(tmp_path)
    check(version, "client", found, names)
    assert sum(not why for why in found.values()) >= {"0.1.16": 25, "2026-07-28": 31}[version]


@pytest.fixture
async def url(nursery: trio.Nursery) -> AsyncIterator[str]:
    """`mcp serve --http` with the graphs that the suite wants."""
    up = trio.Event()
    address: list[str] = []

    def listening(url: str) -> None:
        address.append(url)
        up.set()

    async with Root(config_dir=HERE / "conformance", wait_for_front_end=True) as root:
        offers, problems = read_agents(root)
        assert not problems
        options: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "token": None, "options": ServiceOptions()}
        nursery.start_soon(lambda: serve_http(root, offers, on_listening=listening, **options))
        await up.wait()
        yield address[0]
        nursery.cancel_scope.cancel()


@pytest.mark.full
@pytest.mark.timeout(WITHIN + 60)
@pytest.mark.parametrize("version", SUITES)
async def test_mcp_serve_passes_the_suite_but_for_what_is_expected(version: str, url: str, tmp_path: Path) -> None:
    names = await scenarios(version, "Server scenarios")
    which = ["--suite", "all"] if version == "0.1.16" else ["--requirements", version]
    with trio.fail_after(WITHIN):
        await suite(version, "server", "--url", url, *which, "-o", tmp_path)
    check(version, "server", failures(tmp_path), names)
