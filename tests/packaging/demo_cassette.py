"""Records the cassette of `callboard demo`: `python tests/packaging/demo_cassette.py`.

The script runs the story with the scripted model of tests/support/demo_model.py and records it. The cassette has the
replies and their requests, but no results of tools and scripts: the demo executes those. Each reply gets the seconds
that a real model would take. The head names a real model, so that the demo can show a cost.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[2]
sys.path.insert(0, str(HERE / "tests"))  # as a script, it finds the helpers of the tests there

import msgspec  # noqa: E402 - see above
import trio  # noqa: E402
from support.demo_model import answer  # noqa: E402
from support.fake_models import FakeModels, listening  # noqa: E402

import callboard  # noqa: E402
from callboard.protocol.cassette import AnyLine, CassetteEnd, Head, Piece, ReplyLine, read_cassette  # noqa: E402

STORY = HERE / "examples" / "demo"
FILE = STORY / "replies.jsonl"
PRICED_AS = "claude:claude-haiku-4-5"


async def recorded(directory: Path) -> list[AnyLine]:
    """Record the story in an empty directory and return the lines of the cassette."""
    for name in ("agents", "repository"):
        shutil.copytree(STORY / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    file = directory / "recorded.jsonl"
    os.chdir(directory / "repository")
    async with trio.open_nursery() as nursery:
        listener, port = listening()
        server = FakeModels(port)
        server.answer_with(answer)
        nursery.start_soon(server.serve, listener)
        await callboard.run(
            "../agents/fix-tests",
            model="fake:model",
            yes=True,
            variables={"release_note": "no"},
            record=file,
            config_dir=server.config_dir(directory / "config"),
        )
        nursery.cancel_scope.cancel()
    return [
        _paced(line)
        for line in read_cassette(file.read_text(), str(file))
        if isinstance(line, Head | Piece | ReplyLine | CassetteEnd)
    ]


def _paced(line: AnyLine) -> AnyLine:
    if isinstance(line, Head):
        return msgspec.structs.replace(line, model=PRICED_AS)
    if isinstance(line, ReplyLine) and line.reply is not None:
        seconds = round(0.5 + len(line.reply.text) / 150, 1)
        return msgspec.structs.replace(line, seconds=seconds, reply=msgspec.structs.replace(line.reply, cost=None))
    return line


def main() -> None:
    """Record it."""
    with tempfile.TemporaryDirectory() as directory:
        lines = trio.run(recorded, Path(directory))
        os.chdir(HERE)
    FILE.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    print(f"{FILE}: {FILE.stat().st_size} bytes, {sum(isinstance(line, ReplyLine) for line in lines)} replies")


if __name__ == "__main__":
    main()
