"""Execute a notebook whose cells share a root; interrupt one cell, and go on."""

from __future__ import annotations

import asyncio
import sys

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

OPEN = "import callboard\nroot = await callboard.Root().__aenter__()"
RUN = "outcome = await root.run({graph!r}, 'first')\nprint(outcome.output)"
HANG = """
bot = callboard.Agent(name="bot", instructions="x", can_ask_user=False)
await root.run(bot, "hang")
"""
AFTER = """
left = await root.call(root_runs)
print("left", left)
"""
HELPER = """
async def root_runs():
    return [child.name for child in root.kernel.actor.children if child.name.startswith("run-")]
"""
CLOSE = "await root.close()\nprint('closed')"


async def main(graph: str) -> None:
    sources = [OPEN, RUN.format(graph=graph), HELPER, HANG, AFTER, CLOSE]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    client = NotebookClient(book, timeout=120, kernel_name="python3")
    async with client.async_setup_kernel():
        for number, cell in enumerate(book.cells):
            executing = asyncio.ensure_future(client.async_execute_cell(cell, number))
            if cell.source == HANG:
                print("hangs", flush=True)  # the test says when the model has been asked
                await asyncio.to_thread(sys.stdin.readline)
                assert client.km is not None
                await client.km.interrupt_kernel()
            try:
                await executing
            except CellExecutionError as error:
                print("interrupted", error.ename)
            for output in cell.get("outputs", ()):
                print(output.get("text", "").strip(), flush=True)


asyncio.run(main(sys.argv[1]))
