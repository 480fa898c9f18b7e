"""Knowledge bases (RAG): find, read, split, embed and store documents, so that agents can search them.

`sources` finds documents and `reading` extracts their text. `split` splits the text into chunks, `embed` computes
vectors, and `base` stores both on disk and answers queries. These subpackages are connected only through the types of
`protocol.knowledge`. Start with `sources.gather`.
"""
