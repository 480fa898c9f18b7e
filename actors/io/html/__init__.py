"""Converts untrusted HTML to Markdown: `tags` splits a page, `page` interprets it, `markdown` writes.

Time and memory stay proportional to the page, whatever its shape; nothing in it is executed or fetched. Start with
`page`.
"""
