"""A stage whose user lets agents write files, a project that the run is started in, and a web site."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from support.agent_runs import AgentRunner
from support.fake_models import FakeModels, Incoming, listening

import callboard

SHOP = Path(__file__).parents[3] / "fixtures" / "repos" / "shop"


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts run with ours, a program; what else is called python3 may be a slow script in front of one."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
async def agent_runner(
    tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[AgentRunner]:
    """See `AgentRunner`; `permissions` of its config.yaml are the fixture's parameter, if it has one."""
    config_dir = fake_model.config_dir(tmp_path / "config")
    file = config_dir / "config.yaml"
    permissions = getattr(request, "param", {"fs_write": "allow", "fs_patch": "allow"})
    file.write_text(json.dumps({**json.loads(file.read_text()), "permissions": permissions}))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with callboard.Root(config_dir=config_dir) as root:
        yield AgentRunner(config_dir, fake_model, root)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The broken shop, as the directory that the run is started in."""
    directory = tmp_path / "shop"
    shutil.copytree(SHOP, directory, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(directory)
    for name in ("BUILD_CMD", "TEST_CMD", "CODER_AUTOAPPROVE"):
        monkeypatch.delenv(name, raising=False)
    return directory


class Site:
    """A web site on loopback. `pages` maps targets to bodies, or to (status, headers, body); anything else is 404.

    Attributes:
        url: of the site.
        pages: by target; with the method before it (`HEAD /a`) for that method alone.
        asked: what was asked for, as `GET /a`, in order.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.pages: dict[str, str | tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[str] = []

    async def serve(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        """One connection."""
        request = await Incoming(stream).next()
        if request is None:
            return
        target = request.path.partition("?")[0]
        self.asked.append(f"{request.method} {target}")
        page = self.pages.get(self.asked[-1], self.pages.get(target, (404, {}, b"")))
        if isinstance(page, str):
            page = (200, {"Content-Type": "text/html; charset=utf-8"}, page.encode())
        status, headers, body = page
        lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await stream.send_all("\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if request.method == "HEAD" else body))
        await stream.aclose()


@pytest.fixture
async def site(nursery: trio.Nursery) -> Site:
    """See `Site`."""
    listener, port = listening()
    site = Site(port)
    nursery.start_soon(trio.serve_listeners, site.serve, [listener])
    return site
