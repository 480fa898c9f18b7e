"""A model's Markdown on a terminal, drawn while it grows.

`stream.MarkdownStream` is the way in, and it is pure: text goes in, lines come out, some of them settled for good and
some still open. It feeds `blocks`, which finds the blocks (`leaves`) of a growing text line by line; `paint` paints
each once: `inline` reads its text, `layout` breaks it into lines, `tables` and `code` (Pygments, with its state kept
from line to line) do theirs, `cells` knows how wide characters are. `theme` has the colours (`colours`), `tm_theme`
reads TextMate's files. `terminal` writes the lines to a terminal: settled ones once, the open ones again and again
below them.

The room knows nothing of runs and events, and imports Pygments when a fence names a language, not before.
"""
