"""Reading: bytes of any kind become text.

`read` is the way in: it looks at the contents, then at the name (`kinds`), and hands over to `io.encodings` (what the
letters are), `io.html`, a process of its own (PDF) or `office/`. Everything is bounded by `bounds`; what can't be read
raises `CantRead`, whose text is meant for people. Files are strangers' here: nothing in them is executed, no link in
them is followed.
"""
