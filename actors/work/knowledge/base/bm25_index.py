"""Word index: tantivy, ranked by BM25. It finds names and rare words that vectors blur.

Words are lower case, without accents, and reduced to their stems in one language for the whole base. The index holds
only words, the number of the chunk, and its document for filters and deletions. The text of the chunks is in the
catalogue.

Segments are never modified, so a new generation shares the segments of the previous one through hard links.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, final

from .....protocol.errors import KnowledgeError
from .catalogue import ChunkRow

if TYPE_CHECKING:
    import tantivy

_STEMMERS = (
    "ar arabic, da danish, nl dutch, en english, fi finnish, fr french, de german, el greek, hu hungarian, it italian,"
    " no norwegian, pt portuguese, ro romanian, ru russian, es spanish, sv swedish, ta tamil, tr turkish"
)
LANGUAGES: dict[str, str] = dict(map(str.split, _STEMMERS.split(",")))
NO_LANGUAGE = "none"

WRITER_MEMORY = 64 * 1024 * 1024
LONGEST_WORD = 64
MAX_WORDS = 64
"""Most different words of a query that are searched; the rest is ignored."""

DELETED_AT_ONCE = 10_000


def check_language(language: str) -> None:
    """Raise KnowledgeError unless the language has a stemmer, or is `none`."""
    if language != NO_LANGUAGE and language not in LANGUAGES:
        known = ", ".join((*LANGUAGES, NO_LANGUAGE))
        raise KnowledgeError(f"language {language!r} is not supported; the supported ones are {known}")


def write_words(
    directory: Path, language: str, *, before: Path | None, without: Sequence[int], added: Iterable[Sequence[ChunkRow]]
) -> Iterator[int]:
    """Write the index of a generation. Yields the number of chunks written so far, after each slice of `added`.

    Args:
        directory: emptied first.
        before: index of the previous generation, whose files are linked or copied; None to start with an empty index.
        without: documents of the previous generation to leave out.
    """
    import tantivy

    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    schema = _schema()
    if before is None:
        index = tantivy.Index(schema, path=str(directory))
    else:
        for path in before.iterdir():
            if not path.name.endswith(".lock"):
                try:
                    os.link(path, directory / path.name)
                except OSError:  # a file system without hard links
                    shutil.copyfile(path, directory / path.name)
        index = tantivy.Index.open(str(directory))
    index.register_tokenizer("words", _analyzer(language))
    writer = index.writer(heap_size=WRITER_MEMORY, num_threads=1)
    for start in range(0, len(without), DELETED_AT_ONCE):
        some = without[start : start + DELETED_AT_ONCE]
        # Not `delete_documents_by_term`: it treats every number as signed, and finds none in this unsigned field.
        writer.delete_documents_by_query(tantivy.Query.term_set_query(schema, "document", some))
    done = 0
    for rows in added:
        for each in rows:
            words = "\n".join((*each.chunk.heading, each.chunk.text))
            fields = {"number": each.number, "document": each.document, "words": words}
            writer.add_document(tantivy.Document.from_dict(fields, schema))
        done += len(rows)
        yield done
    writer.commit()
    writer.wait_merging_threads()
    yield done


@final
class WordIndex:
    """Word index of a finished generation. Its methods block and are thread-safe."""

    def __init__(self, directory: Path, language: str) -> None:
        import tantivy

        self._schema = _schema()
        self._analyzer = _analyzer(language)
        index = tantivy.Index.open(str(directory))
        self._searcher = index.searcher()

    def __len__(self) -> int:
        return self._searcher.num_docs

    def search(self, text: str, limit: int, documents: Sequence[int] | None = None) -> list[tuple[int, float]]:
        """Return numbers and BM25 scores of chunks with any of the first `MAX_WORDS` different words; best first.

        Args:
            limit: most chunks to return.
            documents: search only in these documents; None for all.
        """
        from tantivy import Occur, Query

        plain = text.encode(errors="replace").decode()  # a lone surrogate can't be encoded as UTF-8
        words = list(dict.fromkeys(self._analyzer.analyze(plain)))[:MAX_WORDS]
        if not words:
            return []
        terms = [Query.term_query(self._schema, "words", word, index_option="freq") for word in words]
        query = Query.boolean_query([(Occur.Should, term) for term in terms])
        if documents is not None:
            among = Query.const_score_query(Query.term_set_query(self._schema, "document", documents), 0.0)
            query = Query.boolean_query([(Occur.Must, query), (Occur.Must, among)])
        found = self._searcher.search(query, limit, count=False)
        return [(int(self._searcher.doc(address)["number"][0]), float(score)) for score, address in found.hits]


def _schema() -> tantivy.Schema:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("number", stored=True)
    builder.add_unsigned_field("document", indexed=True)
    builder.add_text_field("words", tokenizer_name="words", index_option="freq")
    return builder.build()


def _analyzer(language: str) -> tantivy.TextAnalyzer:
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.simple()).filter(Filter.remove_long(LONGEST_WORD))
    builder = builder.filter(Filter.lowercase())
    if language != NO_LANGUAGE:
        builder = builder.filter(Filter.stemmer(LANGUAGES[language]))
    return builder.filter(Filter.ascii_fold()).build()
