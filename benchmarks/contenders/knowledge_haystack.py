"""Haystack's `InMemoryDocumentStore`: BM25 and vectors, one after the other; kept as one JSON file."""

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
    from haystack import Document
    from haystack.document_stores.in_memory import InMemoryDocumentStore
except ImportError as error:
    absent(error)

QUERIES, WARM = 10, 1


def made(n: int) -> InMemoryDocumentStore:
    store = InMemoryDocumentStore(embedding_similarity_function="cosine", shared=False)
    pairs = zip(texts(n), vectors(n), strict=True)
    store.write_documents([Document(content=text, embedding=vector.tolist()) for text, vector in pairs])
    return store


kept = cache(made)


def build(n: int) -> float:
    texts(n), vectors(n)
    began = clock()
    made(n)
    return clock() - began


def near(store: InMemoryDocumentStore, query: Floats) -> list[Document]:
    return store.embedding_retrieval(query.tolist(), top_k=TOP_K)


def both(store: InMemoryDocumentStore, text: str, query: Floats) -> None:
    store.bm25_retrieval(text, top_k=TOP_K)
    near(store, query)


def hybrid(n: int) -> dict[str, float]:
    store, pairs = kept(n), zip(*queries(n, WARM + QUERIES), strict=True)
    return quantiles([milliseconds(partial(both, store, text, query)) for text, query in pairs][WARM:])


def by_vector(n: int) -> dict[str, float]:
    store, (_, some) = kept(n), queries(n, WARM + QUERIES)
    return quantiles([milliseconds(partial(near, store, query)) for query in some][WARM:])


def recall(n: int) -> float:
    store, (_, some) = kept(n), queries(n, QUERIES)
    found = [{number_of(each.content or "") for each in near(store, query)} for query in some]
    hits = sum(len(chunks & nearest(n, query)) for chunks, query in zip(found, some, strict=True))
    return hits / len(some) / TOP_K * 100


def saved(case: Callable[[int], Any]) -> Callable[[int], Any]:
    """The same once there is a file."""

    def run(n: int) -> Any:
        if not (HOME / f"{n}.json").exists():
            kept(n).save_to_disk(str(HOME / f"{n}.json"))
        return case(n)

    return run


def loaded(n: int) -> InMemoryDocumentStore:
    return InMemoryDocumentStore.load_from_disk(str(HOME / f"{n}.json"))


def reopen(n: int) -> float:
    return milliseconds(partial(loaded, n))


def memory(n: int) -> float:
    loaded(n).embedding_retrieval([1.0] * 256, top_k=TOP_K)
    return resident() / 1024


if __name__ == "__main__":
    serve(
        {
            "build": build,
            "reopen": saved(in_a_fresh_process("reopen_here")),
            "reopen_here": reopen,
            "hybrid_p50": lambda n: hybrid(n)["p50"],
            "hybrid_p95": lambda n: hybrid(n)["p95"],
            "vector_p50": lambda n: by_vector(n)["p50"],
            "vector_p95": lambda n: by_vector(n)["p95"],
            "recall": recall,
            "memory": saved(in_a_fresh_process("memory_here")),
            "memory_here": memory,
        }
    )
