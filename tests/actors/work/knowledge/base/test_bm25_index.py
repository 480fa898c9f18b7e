"""The index of words: stems of its language, ranks by rarity, and no query that breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import says

from callboard.actors.work.knowledge.base.bm25_index import LANGUAGES, WordIndex, check_language, write_words
from callboard.actors.work.knowledge.base.catalogue import ChunkRow
from callboard.protocol.errors import KnowledgeError
from callboard.protocol.knowledge import Chunk


def _row(number: int, text: str, *heading: str) -> ChunkRow:
    chunk = Chunk(id=str(number), source="s", text=text, heading=heading, lines=(1, 1))
    return ChunkRow(number=number, document=number // 10, ordinal=0, chunk=chunk)


def _index(directory: Path, language: str, *texts: str) -> WordIndex:
    rows = [_row(number, text) for number, text in enumerate(texts)]
    *_, done = write_words(directory / "words", language, before=None, without=(), added=[rows])
    assert done == len(texts)
    return WordIndex(directory / "words", language)


def _found(index: WordIndex, text: str) -> list[int]:
    return [number for number, _ in index.search(text, 10)]


@pytest.mark.parametrize(
    ("language", "text", "query", "finds"),
    [
        ("en", "the engines were connected", "connecting engine", True),
        ("de", "Die Häuser stehen leer", "haus", True),
        ("en", "Die Häuser stehen leer", "haus", False),
        ("fr", "les chevaux continuaient", "cheval continuer", True),
        ("none", "the engines", "engine", False),
        ("none", "Café ÉTÉ", "cafe ete", True),
        ("en", "def read_file_names(path)", "file_names", True),
        ("en", "Error XK-4471 at 0x7f", "xk-4471", True),
    ],
)
def test_words_are_compared_as_their_language_has_them(
    tmp_path: Path, language: str, text: str, query: str, finds: bool
) -> None:
    assert bool(_found(_index(tmp_path, language, text, "something else"), query)) == finds


def test_rare_words_count_for_more_and_headings_count(tmp_path: Path) -> None:
    rows = [*(_row(number, "common words only") for number in range(9)), _row(9, "rare words"), _row(10, "x", "Title")]
    list(write_words(tmp_path / "words", "en", before=None, without=(), added=[rows]))
    index = WordIndex(tmp_path / "words", "en")
    assert _found(index, "common rare")[0] == 9
    assert _found(index, "title") == [10]
    assert [number for number, _ in index.search("rare title", 10, [1])] == [10]


def test_a_new_generation_shares_the_files_of_the_one_before_and_changes_none(tmp_path: Path) -> None:
    rows = [_row(number, f"word{number} shared") for number in range(100)]
    list(write_words(tmp_path / "one", "en", before=None, without=(), added=[rows]))
    before = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    added = [[_row(1000, "new shared")]]
    list(write_words(tmp_path / "two", "en", before=tmp_path / "one", without=[3, 4], added=added))
    assert {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()} == before
    assert len(WordIndex(tmp_path / "one", "en")) == 100
    index = WordIndex(tmp_path / "two", "en")
    assert len(index) == 81
    assert _found(index, "word35") == []
    assert _found(index, "word55") == [55]
    assert _found(index, "new") == [1000]
    assert any(path.stat().st_nlink > 1 for path in (tmp_path / "two").iterdir())


def test_every_language_that_is_named_is_there(tmp_path: Path) -> None:
    for language in (*LANGUAGES, "none"):
        check_language(language)
        assert _found(_index(tmp_path, language, "abc 123"), "123") == [0]
    with pytest.raises(
        KnowledgeError, match=says("work.knowledge.base.bm25_index.check_language", language="klingon", known="ar, da…")
    ):
        check_language("klingon")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> WordIndex:
    return _index(tmp_path_factory.mktemp("index"), "en", "some text", "another text")


@settings(deadline=None)
@given(query=st.text(max_size=200))
def test_any_text_is_a_query(index: WordIndex, query: str) -> None:
    for number, score in index.search(query, 10):
        assert number in (0, 1)
        assert score > 0
