"""Embedding of texts, and reranking.

`embedder` defines the interface, and `embedders` returns the embedder for a model id. Embedders use HTTP (`remote`,
with a codec per provider in `codecs`), compute in this process (`local`), or use the local engine. `cache` stores
computed vectors and is queried first. `rerank` scores the relevance of texts to a query. This package uses the
catalogue, transport and engines of `models`; it does not depend on sources, chunks or indexes.
"""
