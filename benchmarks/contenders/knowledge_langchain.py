"""LangChain's `InMemoryVectorStore`: vectors only, lists of Python floats, kept as one JSON file."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from _knowledge import (
    HOME,
    TOP_K,
    Floats,
    milliseconds,
    nearest,
    number_of,
    quantiles,
    queries,
    texts,
    vectors,
)
from _serve import absent, clock, in_a_fresh_process, resident, serve

try:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import InMemoryVectorStore
except ImportError as error:
    absent(error)

QUERIES, WARM = 10, 1


class Prepared(Embeddings):
    """Looks vectors up."""

    def __init__(self, n: int) -> None:
        self._vectors = vectors(n)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._vectors[number_of(text)].tolist() for text in texts]

    def embed_query(self, text: str) -> list[float]:
        raise NotImplementedError


def made(n: int) -> InMemoryVectorStore:
    store = InMemoryVectorStore(Prepared(n))
    store.add_documents([Document(text) for text in texts(n)])
    return store


kept = cache(made)


def build(n: int) -> float:
    texts(n), vectors(n)
    began = clock()
    made(n)
    return clock() - began


def find(n: int, query: Floats) -> list[Document]:
    return kept(n).similarity_search_by_vector(query.tolist(), k=TOP_K)


def asked(n: int) -> dict[str, float]:
    _, some = queries(n, WARM + QUERIES)
    kept(n)
    return quantiles([milliseconds(partial(find, n, near)) for near in some][WARM:])


def recall(n: int) -> float:
    _, some = queries(n, QUERIES)
    hits = sum(len({number_of(each.page_content) for each in find(n, near)} & nearest(n, near)) for near in some)
    return hits / len(some) / TOP_K * 100


def dumped(case: Callable[[int], Any]) -> Callable[[int], Any]:
    """The same once there is a file."""

    def run(n: int) -> Any:
        if not (HOME / f"{n}.json").exists():
            kept(n).dump(str(HOME / f"{n}.json"))
        return case(n)

    return run


def reopen(n: int) -> float:
    return milliseconds(partial(loaded, n))


def loaded(n: int) -> InMemoryVectorStore:
    class Unasked(Embeddings):
        embed_documents = embed_query = Prepared.embed_query

    return InMemoryVectorStore.load(str(HOME / f"{n}.json"), Unasked())


def memory(n: int) -> float:
    store = loaded(n)
    store.similarity_search_by_vector([1.0] * 256, k=TOP_K)
    return resident() / 1024


if __name__ == "__main__":
    serve(
        {
            "build": build,
            "reopen": dumped(in_a_fresh_process("reopen_here")),
            "reopen_here": reopen,
            "vector_p50": lambda n: asked(n)["p50"],
            "vector_p95": lambda n: asked(n)["p95"],
            "recall": recall,
            "memory": dumped(in_a_fresh_process("memory_here")),
            "memory_here": memory,
        }
    )
