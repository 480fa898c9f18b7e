"""A second look at what was found: how well each text answers a query, judged by a model that reads both.

`rerankers` gives out the one that a model's id means: a provider's (`remote`, in the words of `wires`), or
`local:minilm`, which compares vectors (`minilm`). Knows the lines and embedders of `embed`, and nothing of bases.
"""
