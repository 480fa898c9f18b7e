"""Streaming Markdown renderer for terminals.

`stream.MarkdownStream` is the entry point and is pure: text goes in, lines come out, some settled for good and some
still open. It feeds `blocks`, which finds the blocks of a growing text line by line. `paint` renders each block once:
`inline` parses its text, and `layout` breaks it into lines. `tables` and `code` render their blocks; `code` uses
Pygments and carries its state from line to line. `theme` provides the colours. `terminal` writes the lines: settled
ones once, open ones repeatedly below them.

The package does not depend on runs or events. It imports Pygments only when a fence names a language.
"""
