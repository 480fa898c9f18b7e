"""What it costs to draw a long answer while a model says it: 100 kB of Markdown, 200 pieces of 3 characters a second.

Budget: at most 10 % of a core, with 30 pictures a second; shown is also what goes to the terminal. Beside it, what rich
costs where the whole text is rendered anew for each picture as it grows (some of the pictures are measured).

    python benchmarks/rendering.py [FILE.md ...]
"""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

from callboard.cli.render.markdown.stream import MarkdownStream
from callboard.cli.render.markdown.terminal import RATE, LiveText
from callboard.cli.render.markdown.theme import Theme, of_pygments

SIZE = 100_000
PIECE = 3
PIECES_A_SECOND = 200
BUDGET = 0.10
SAMPLED = 20

DOCS = Path(__file__).parents[1] / "docs"


class Counted(io.StringIO):
    """A terminal that counts what it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def write(self, text: str) -> int:
        self.bytes += len(text.encode())
        return len(text)


def text_of(files: list[str]) -> str:
    """The answer: these files, or pages of ours, again and again until it is long enough."""
    pages = [Path(file) for file in files] or [
        DOCS / f"{name}.md" for name in ("tools", "graphs", "mcp", "python-api", "cli")
    ]
    text = "\n\n".join(page.read_text(encoding="utf-8") for page in pages)
    return (text * (SIZE // len(text) + 1))[:SIZE]


def drawn(text: str, columns: int) -> tuple[float, float, int]:
    """CPU seconds in all, those of the costliest picture, and bytes written."""
    terminal, theme = Counted(), Theme(of_pygments("monokai"))
    live = LiveText(terminal, lambda width: MarkdownStream(width, theme), {}, size=lambda: (columns, 50))
    began, due, worst = time.process_time(), 0.0, 0.0
    for at in range(0, len(text), PIECE):
        live.add(text[at : at + PIECE])
        due += RATE / PIECES_A_SECOND
        if due >= 1:
            due -= 1
            picture = time.process_time()
            live.draw()
            worst = max(worst, time.process_time() - picture)
    live.end()
    return time.process_time() - began, worst, terminal.bytes


def whole_by_rich(text: str, columns: int, seconds: float) -> float:
    """CPU seconds for as many pictures as there are in these seconds, by the mean of some of them."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(file=io.StringIO(), width=columns, force_terminal=True)
    began = time.process_time()
    for number in range(1, SAMPLED + 1):
        console.print(Markdown(text[: len(text) * number // SAMPLED]))
    return (time.process_time() - began) / SAMPLED * seconds * RATE


def main() -> int:
    """Prints the table; 1 if the budget was not kept."""
    text = text_of(sys.argv[1:])
    seconds = len(text) / PIECE / PIECES_A_SECOND
    kept = True
    print(f"{len(text) / 1000:.0f} kB of Markdown in {seconds:.0f} s, {RATE:.0f} pictures a second")
    for columns in (40, 80, 200):
        cpu, worst, written = drawn(text, columns)
        fits = cpu <= BUDGET * seconds
        kept = kept and fits
        print(
            f"{columns:4} columns  {cpu / seconds:6.1%} of a core  costliest picture {worst * 1000:5.1f} ms"
            f"  {written / len(text.encode()):4.1f} bytes a byte  budget {BUDGET:.0%}: {'kept' if fits else 'NOT KEPT'}"
        )
    rich = whole_by_rich(text, 80, seconds)
    print(f"  80 columns  {rich / seconds:6.0%} of a core for rich, all of it anew for each picture")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
