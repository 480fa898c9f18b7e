"""Questions with known answers: the FAQ of Perl, among the rest of Perl's manual.

Real, public and written by people, for people who look something up: some 300 questions in nine files (perlfaq1 to
perlfaq9), each with its answer below it. An answer becomes a document of its own *without* its question, so that a
query is never a copy of what is to be found; the manual's own pages lie beside them, and say much that fits as well.
It is in Debian's package `perl-doc` (GPL-1+ or Artistic, as Perl is), which is fetched and unpacked, not installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FAQ = tuple(f"perlfaq{number}" for number in range(1, 10))

MANUAL = (
    "data debtut debug dsc embed form func glossary intro ipc locale lol mod modlib modstyle number obj "
    "ootut op opentut packtut perf pod port re ref reftut requick retut run sec style sub syn tie trap "
    "unicode unicook uniintro var"
)
"""What perl(1) names under tutorials and reference, but for generated lists and indexes of the FAQ."""

LEAST = 200
"""Characters of an answer; shorter ones only say where else to look."""


@dataclass(frozen=True)
class Question:
    """What is asked, and the name of the document that answers it."""

    text: str
    answer: str


def unpacked(directory: Path) -> Path:
    """The pages as pod, fetched into this directory unless they are there.

    Raises:
        LookupError: they can't be had here; the text says why.
    """
    if not any(directory.rglob("perlfaq1.pod")):
        for program in ("apt-get", "dpkg-deb"):
            if shutil.which(program) is None:
                raise LookupError(f"there is no {program} to fetch perl-doc with; name its pod directory: --corpus DIR")
        with tempfile.TemporaryDirectory() as place:
            fetched = subprocess.run(
                ["apt-get", "-qq", "download", "perl-doc"], cwd=place, capture_output=True, text=True, check=False
            )
            if fetched.returncode:
                raise LookupError(f"perl-doc can't be had: {fetched.stderr.strip()} (try: apt-get update)")
            [package] = Path(place).glob("*.deb")
            directory.mkdir(parents=True, exist_ok=True)  # dpkg-deb makes but the last of them
            subprocess.run(["dpkg-deb", "-x", str(package), str(directory)], check=True)
    return next(directory.rglob("perlfaq1.pod")).parent


def write(pods: Path, directory: Path) -> list[Question]:
    """Write all documents into the directory, as Markdown; what is asked of them."""
    questions = []
    for name in FAQ:
        for number, (question, answer) in enumerate(_answers(_read(pods, name))):
            path = directory / "faq" / f"{name}-{number:02d}.md"
            path.parent.mkdir(exist_ok=True)
            path.write_text(answer)
            questions.append(Question(question, f"faq/{path.name}"))
    for name in (f"perl{name}" for name in MANUAL.split()):
        if text := _read(pods, name):
            path = directory / "manual" / f"{name}.md"
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n\n".join(_markdown(text)))
    return questions


def _read(pods: Path, name: str) -> str:
    path = pods / f"{name}.pod"
    return path.read_text(errors="replace") if path.exists() else ""


def _answers(pod: str) -> Iterator[tuple[str, str]]:
    """The questions of a file, each with what stands below it."""
    for part in re.split(r"^=head2 ", pod, flags=re.MULTILINE)[1:]:
        question, _, rest = part.partition("\n\n")
        answer = re.split(r"^=head1 ", rest, maxsplit=1, flags=re.MULTILINE)[0]
        text = "\n\n".join(_markdown(answer)).strip()
        if len(text) >= LEAST:
            yield " ".join(_plain(question).split()), text


def _markdown(pod: str) -> Iterator[str]:
    """Paragraph by paragraph."""
    skipping = ""
    for paragraph in re.split(r"\n[ \t]*\n+", pod):
        command = re.match(r"=(\w+)[ \t]*(.*)", paragraph, re.DOTALL)
        if skipping:
            skipping = "" if command and command[1] == "end" else skipping
        elif command is None:
            verbatim = paragraph[:1] in " \t"
            yield paragraph if verbatim else _plain(paragraph)
        elif command[1] == "begin":
            skipping = command[2]
        elif command[1].startswith("head"):
            yield f"{'#' * int(command[1][4:])} {' '.join(_plain(command[2]).split())}"
        elif command[1] == "item":
            yield f"- {_plain(command[2]).removeprefix('*').strip()}"


_CODE = re.compile(r"([BCEFILSXZ])(?:<<+\s+(.*?)\s+>>+|<([^<>]*)>)", re.DOTALL)
_NAMED = {"lt": "\1", "gt": "\2", "verbar": "|", "sol": "/"}


def _plain(text: str) -> str:
    """Without the codes of pod: `C<print>` is `print`."""
    while (plain := _CODE.sub(_shown, text)) != text:
        text = plain
    return text.translate({1: "<", 2: ">"})


def _shown(code: re.Match[str]) -> str:
    inside = code[2] if code[2] is not None else code[3]
    inside = inside.replace("<", "\1").replace(">", "\2")
    match code[1]:
        case "X" | "Z":
            return ""
        case "E":
            return _NAMED.get(inside, inside)
        case "L":
            return inside.partition("|")[0].replace('"', "")
    return inside
