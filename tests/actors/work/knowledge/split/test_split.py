"""Laws of splitting, whatever the kind of document: nothing lost, nothing too long, lines true, ids stable."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cpu_time import slowness
from support.messages import says

from callboard.actors.work.knowledge.split import Cutter, _pieces, split
from callboard.protocol.errors import ConfigError
from callboard.protocol.knowledge import Document

KINDS = ("text", "markdown", "html", "code:python", "code:sql", "code:yaml", "csv", "tsv", "json", "jsonl", "pdf")

FRAGMENTS = st.sampled_from(
    r"""# A|## B #|Title\n===|---|```|~~~|a,b,c|"x, ""y\n|{"k": [1, 2]}|[|]|{}|, |\n|\n\n|    |def f():|class C:|@d"""
    r"""|The end. |東京タワー。|ÄÖÜ |🌍|word |- item|\t""".replace("\\n", "\n")
    .replace("\\t", "\t")
    .split("|")
)
TEXTS = st.lists(FRAGMENTS | st.text(max_size=30), max_size=60).map("".join)
WORDS = ["the", "actor", "mailbox", "child", "waits", "for", "graph", "state", "every", "root", "ends", "signal", "why"]


def document(text: str, kind: str = "text", source: str = "a.txt") -> Document:
    return Document(source=source, text=text, kind=kind)


def essay(seed: int, sentences: int) -> str:
    rng = random.Random(seed)
    text = []
    for _ in range(sentences):
        text.append(" ".join(rng.choices(WORDS, k=rng.randint(4, 16))).capitalize() + ".")
        text.append(rng.choice(["\n\n", " ", " ", "\n"]))
    return "".join(text)


@given(text=TEXTS, kind=st.sampled_from(KINDS), size=st.integers(1, 120), part=st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_chunks_are_the_whole_text_in_order_and_none_is_too_long(text: str, kind: str, size: int, part: int) -> None:
    overlap = min(size - 1, size * part // 4)
    chunks = split(document(text, kind), size=size, overlap=overlap)
    pieces = [piece for piece in _pieces(kind, Cutter(text, size, overlap)) if text[piece.start : piece.end].strip()]
    end = 0
    for chunk, piece in zip(chunks, pieces, strict=True):
        assert text[end : piece.start].strip() == ""  # nothing is lost between two of them
        assert end < piece.end
        end = piece.end
        part_of_text = text[piece.start : piece.end]
        assert chunk.text.strip() == (piece.before + part_of_text.lstrip()).strip()
        first, last = chunk.lines
        assert text[: piece.start + len(part_of_text) - len(part_of_text.lstrip())].count("\n") == first - 1
        assert text[: piece.start + len(part_of_text.rstrip())].count("\n") == last - 1
        assert len(chunk.text) <= size
    assert text[end:].strip() == ""
    assert len({chunk.id for chunk in chunks}) == len(chunks)
    assert all(chunk.text.strip() for chunk in chunks)


@given(text=TEXTS, kind=st.sampled_from(KINDS), size=st.integers(1, 60))
@settings(max_examples=100, deadline=None)
def test_the_same_document_has_the_same_chunks(text: str, kind: str, size: int) -> None:
    assert split(document(text, kind), size=size) == split(document(text, kind), size=size)


@given(seeds=st.lists(st.integers(0, 10**6), min_size=3, max_size=6, unique=True), place=st.data())
@settings(max_examples=40, deadline=None)
def test_what_changes_in_one_section_leaves_the_ids_of_all_others(seeds: list[int], place: st.DataObject) -> None:
    changed = place.draw(st.integers(0, len(seeds) - 1))
    sections = [f"# S{seed}\n\n{essay(seed, 30)}\n\n" for seed in seeds]
    before = split(document("".join(sections), "markdown"), size=400)
    sections[changed] = sections[changed].replace("\n\n", f"\n\n{essay(-1, place.draw(st.integers(1, 9)))}", 1)
    after = split(document("".join(sections), "markdown"), size=400)
    others = [chunk.id for chunk in before if chunk.heading != (f"S{seeds[changed]}",)]
    assert others == [chunk.id for chunk in after if chunk.heading != (f"S{seeds[changed]}",)]
    assert len(others) < len(before)


def test_the_beginning_of_the_next_section_has_no_say_in_the_end_of_this_one() -> None:
    for seed in range(20):
        found = set()
        for title in "BCDEFGHIJK":
            text = f"# A\n\n{essay(seed, 30)}\n\n# {title}\n\n{essay(9, 30)}"
            chunks = split(document(text, "markdown"), size=400)
            found.add(tuple(chunk.id for chunk in chunks if chunk.heading == ("A",)))
        assert len(found) == 1
        assert len(found.pop()) > 3


@pytest.mark.parametrize("kind", ["text", "code:python"])
def test_a_word_put_in_at_the_top_of_a_long_text_changes_a_few_chunks_only(kind: str) -> None:
    text = essay(1, 2000)
    before = {chunk.id for chunk in split(document(text, kind), size=400)}
    changed = {chunk.id for chunk in split(document(f"Something new. {text}", kind), size=400)} - before
    assert len(before) > 300
    assert 1 <= len(changed) <= 12


def test_ids_go_by_source_heading_and_text_and_a_counter() -> None:
    twice = split(document("same words here\n" * 2), size=16)
    assert [chunk.text for chunk in twice] == ["same words here", "same words here"]
    once = split(document("same words here"), size=16)
    assert [chunk.id for chunk in twice] == [once[0].id, twice[1].id]
    assert twice[1].id != once[0].id
    assert split(document("same words here", source="b.txt"), size=16)[0].id != once[0].id


def test_the_same_text_under_another_heading_is_another_chunk() -> None:
    text = "# A\ntext\n## T\nsame words here\n# B\ntext\n## T\nsame words here\n"
    same = [chunk for chunk in split(document(text, "markdown"), size=21) if chunk.text == "## T\nsame words here"]
    assert [chunk.heading for chunk in same] == [("A", "T"), ("B", "T")]
    assert same[0].id != same[1].id
    alone = split(document(text.partition("# B")[2].join(("# B", "")), "markdown"), size=21)
    assert alone[-1].id == same[1].id


def test_an_empty_document_has_no_chunks() -> None:
    assert split(document("")) == []
    assert split(document(" \n\n\t\n")) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 0}, says("work.knowledge.split.split", size=0)),
        ({"size": 10, "overlap": 10}, says("work.knowledge.split.split.2", size=10, overlap=10)),
        ({"size": 10, "overlap": -1}, says("work.knowledge.split.split.2")),
    ],
)
def test_sizes_that_make_no_sense_are_refused(options: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        split(document("text"), **options)


def test_the_overlap_is_a_twentieth_unless_told_otherwise() -> None:
    text = essay(3, 100)
    assert split(document(text), size=400) == split(document(text), size=400, overlap=20)
    assert split(document(text), size=400) != split(document(text), size=400, overlap=0)


def test_overlaps_begin_with_a_sentence_or_a_word() -> None:
    chunks = split(document(essay(4, 200).replace("\n", " ")), size=300, overlap=60)
    for before, after in pairwise(chunks):
        shared = max((after.text[:n] for n in range(61) if before.text.endswith(after.text[:n].rstrip())), key=len)
        assert 10 < len(shared) <= 60
        assert before.text.removesuffix(shared.rstrip())[-1].isspace()


@pytest.mark.parametrize("kind", ["text", "markdown", "code:python", "csv", "json"])
@pytest.mark.sample(3)
def test_ten_megabytes_take_less_than_two_seconds(kind: str) -> None:
    """A tenth of it in a tenth of the time, measured in CPU seconds, with the slack of a busy machine."""
    text = essay(5, 18_000)
    if kind == "markdown":
        text = "".join(f"## Part {n}\n\n{text[n * 5000 : n * 5000 + 5000]}\n\n" for n in range(len(text) // 5000))
    elif kind == "csv":
        text = "one,two\n" + "".join(f"{n},{line}\n" for n, line in enumerate(text.split("\n")))
    elif kind == "json":
        text = msgspec.json.encode([{"id": n, "text": line} for n, line in enumerate(text.split("\n"))]).decode()
    assert len(text) > 900_000
    began = time.process_time()
    assert len(split(document(text, kind))) > 800
    assert time.process_time() - began < 1.0 * slowness()
