"""Knowledge: documents found, read, split, embedded and kept, so that agents can look things up in them.

`sources` finds them and `reading` makes text of them; `split` cuts the text up, `embed` makes vectors of the pieces,
and `base` keeps both on disk and answers queries. They know each other only through `protocol.knowledge`. Start with
`sources.gather`.
"""
