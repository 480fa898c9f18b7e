"""Texts as vectors: `embedder` says what an embedder is, `embedders` gives out the one that a model's id means.

Over HTTP (`remote`, with a `wires` entry per provider), from static weights in this process (`static`), or from the
local engine (`local`). What was embedded once is kept in `cache`, which `cached` asks first. Knows the catalogue,
transport and engines of `models`, and nothing of sources, chunks or indexes.
"""
