"""Texts as vectors: `embedder` says what an embedder is, `embedders` gives out the one that a model's id means.

Over HTTP (`remote`, with a codec per provider in `codecs`), computed here (`local`), or from the local engine. What was
embedded once is kept in `cache`, which is asked first. `rerank` judges how well texts answer a query. Knows the
catalogue, transport and engines of `models`, and nothing of sources, chunks or indexes.
"""
