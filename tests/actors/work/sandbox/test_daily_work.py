"""Work that agents do every day, in the default sandbox and without a network."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.sandbox_surroundings import BACKENDS, need, world

SERVER = """
import asyncio

async def main():
    done = asyncio.Event()

    async def serve(reader, writer):
        writer.write(await reader.read(4))
        writer.close()
        done.set()

    await asyncio.start_unix_server(serve, "s")
    reader, writer = await asyncio.open_unix_connection("s")
    writer.write(b"4711")
    print((await reader.read()).decode())
    await done.wait()
    await (await asyncio.create_subprocess_exec("true")).wait()

asyncio.run(main())
"""

POOL = """
import multiprocessing

pool = multiprocessing.get_context("forkserver").Pool(2)
print(sum(pool.map(int, ["4700", "11"])))
shared = multiprocessing.Manager().dict()
shared[1] = 2
assert shared[1] == 2
"""

SOCKET = """
const net = require("net")
const server = net.createServer(c => c.end("4711")).listen("s", () =>
  net.connect("s").on("data", text => { console.log(String(text)); server.close() }))
"""

FORK = """
const { fork } = require("child_process")
fork("x.js").on("message", number => console.log(number))
"""

PIP = """
python3 -m pip install -q --no-index --no-deps --target t ./w/*.whl
test -x t/bin/made && PYTHONPATH=t python3 -c 'import made; print(made.VALUE)'
"""

NPM = """
mkdir p && echo '{"name": "p", "version": "1.0.0", "bin": "b.js"}' > p/package.json && echo '{}' > package.json
printf '#!/usr/bin/env node\\nconsole.log(4711)\\n' > p/b.js
npm install --offline --no-audit --no-fund ./p && ./node_modules/.bin/p
"""

MAKE = """
printf 'all: out\\nout: in\\n\\tcp -p in out && chmod 700 out\\n' > Makefile && echo 4711 > in && make -s && cat out
"""

TAR = """
mkdir d && echo 4711 > d/f && chmod 640 d/f && touch -d 2001-01-01 d/f && tar czf t.gz d && rm -r d && tar xzf t.gz
test "$(stat -c %Y d/f)" = "$(date -d 2001-01-01 +%s)" && cat d/f
"""

WORK = {
    "pip": ["bash", "-c", PIP],
    "npm": ["bash", "-c", NPM],
    "make": ["bash", "-c", MAKE],
    "tar": ["bash", "-c", TAR],
    "processes of Python": ["python3", "-c", POOL],
    "asyncio": ["python3", "-c", SERVER],
    "node over a socket": ["node", "-e", SOCKET],
    "node with a worker": ["node", "-e", FORK],
}


def wheel(directory: Path) -> None:
    """Write a wheel with a script, of which pip sets the mode."""
    import zipfile

    directory.mkdir()
    with zipfile.ZipFile(directory / "made-1-py3-none-any.whl", "w") as file:
        file.writestr("made.py", "VALUE = 4711\n")
        file.writestr("made-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: made\nVersion: 1\n")
        file.writestr("made-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("made-1.dist-info/entry_points.txt", "[console_scripts]\nmade = made:VALUE\n")
        file.writestr("made-1.dist-info/RECORD", "")


@pytest.mark.sample(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", WORK)
async def test_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, name: str) -> None:
    need(backend, monkeypatch)
    if name == "processes of Python" and backend == "landlock":
        pytest.skip("its socket would be in $TMPDIR, whose path is too long for one below pytest's")
    for program in ("npm", "node", "make"):
        if program in name and shutil.which(program) is None:
            pytest.skip(f"there is no {program} here")
    with world(tmp_path) as there:
        wheel(there.workspace / "w")
        (there.workspace / "x.js").write_text("process.send(4711); process.disconnect()\n")
        sandbox = there.sandbox()
        done = await there.run(WORK[name], sandbox)
        assert b"4711" in done.stdout, (done.stdout, done.stderr_tail)
        assert there.harm(done) == []
        sandbox.remove()
