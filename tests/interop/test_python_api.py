"""The public Python API as pyright sees it, and the programs of examples/python that need FastAPI.

They run in the environment `embedding` of `make interop`, with this checkout on their path.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from interop.environments import HERE, INSTALLED, needs

pytestmark = [needs("embedding")]

BIN = INSTALLED / "embedding/bin"
ROOT = HERE.parents[1]
KNOWN_SHARE = 0.99
PRIVATE = ("actors", "cli", "protocol", "supervisors")

DRIVER = """
import asyncio, callboard, httpx
from callboard.testing import FunctionModel
import fastapi_stream

async def main():
    app = fastapi_stream.app
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x")
    async with fastapi_stream.lifespan(app), client:
        for _ in range(2):
            print((await client.get("/ask", params={"question": "Hi"})).text.strip())

replies = ["Hello.", callboard.errors.ModelError("it is down")]
with FunctionModel(lambda _: replies.pop(0)).everywhere():
    asyncio.run(main())
"""


def environment(home: Path) -> dict[str, str]:
    places = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("STATE", "CACHE", "DATA")}
    path = os.pathsep.join([str(ROOT / ".types"), str(ROOT / "examples/python")])
    return {**os.environ, "PYTHONPATH": path, "CALLBOARD_CONFIG_DIR": str(home / "config"), **places}


def test_the_fastapi_program_streams_text(tmp_path: Path) -> None:
    program = [BIN / "python", "-c", DRIVER]
    env = environment(tmp_path)
    done = subprocess.run(program, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=300, check=False)
    assert done.stdout.splitlines() == ['data: "Hello."', "event: error", 'data: "it is down"'], done.stderr


def pyright(tmp_path: Path, *words: str | Path, path: Path | str = ROOT / ".types") -> Any:
    program = [BIN / "pyright", "--outputjson", *words]
    env = {**environment(tmp_path), "PYTHONPATH": str(path), "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]])}
    done = subprocess.run(program, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=900, check=False)
    if not done.stdout.startswith("{"):
        pytest.fail(done.stdout + done.stderr)
    return json.loads(done.stdout)


def test_the_programs_have_no_errors(tmp_path: Path) -> None:
    # The programs import each other, and OpenTelemetry is in the environment of this test.
    places = [ROOT / ".types", ROOT / "examples/python", sysconfig.get_path("purelib")]
    report = pyright(tmp_path, *sorted((ROOT / "examples/python").glob("*.py")), path=os.pathsep.join(map(str, places)))
    assert report["summary"]["filesAnalyzed"] == 10
    found = [f"{each['file']}: {each['message']}" for each in report["generalDiagnostics"]]
    assert found == []


def test_types_of_the_public_api_are_known(tmp_path: Path) -> None:
    """pyright counts every module without an underscore as public, so it is given the package with private names."""
    marked_private(tmp_path / "callboard")
    report = pyright(tmp_path, "--verifytypes", "callboard", "--ignoreexternal", path=tmp_path)
    count = report["typeCompleteness"]["exportedSymbolCounts"]
    share = count["withKnownType"] / sum(count.values())
    unknown = [
        (each["name"], [found["message"] for found in each["diagnostics"]])
        for each in report["typeCompleteness"]["symbols"]
        if not each["isTypeKnown"]
    ]
    assert sum(count.values()) > 200
    assert share >= KNOWN_SHARE, f"{share:.1%} of {count}: {unknown[:50]}"


def marked_private(target: Path) -> None:
    """Copy the package with an underscore before the names of its private packages."""
    for source in [
        *ROOT.glob("*.py"),
        ROOT / "py.typed",
        *(file for each in PRIVATE for file in (ROOT / each).rglob("*.py")),
    ]:
        parts = source.relative_to(ROOT).parts
        copy = target.joinpath(f"_{parts[0]}" if len(parts) > 1 else parts[0], *parts[1:])
        copy.parent.mkdir(parents=True, exist_ok=True)
        top = rf"\bfrom (\.{{{len(parts)}}})(?=({'|'.join(PRIVATE)})\b)"
        copy.write_text(re.sub(top, r"from \1_", source.read_text()))
