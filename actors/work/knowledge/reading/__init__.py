"""Readers: convert bytes of any format to text.

`read` is the entry point: it inspects the contents, then the name (`kinds`). It calls `io.encodings` for text,
`io.html` for pages, a separate process for PDF, or `office`. Limits are in `limits`. An unreadable source raises
`CantRead` with a text for users. Files are untrusted: nothing in them is executed, and no link is followed.
"""
