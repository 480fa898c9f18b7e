"""Conversion of untrusted HTML to Markdown: `tags` splits a page, `page` interprets it, `markdown` writes.

Time and memory are linear in the size of the page, whatever its structure; nothing in it is executed or fetched. Start
with `page`.
"""
