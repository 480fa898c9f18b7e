"""HTML, as strangers write it: `tags` cuts a page up, `page` reads it, `markdown` writes down what it says.

Time and memory stay proportional to the page, whatever its shape; nothing in it is executed or fetched. Start with
`page`.
"""
