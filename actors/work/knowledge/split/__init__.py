"""Documents cut into chunks, by their structure, with nothing lost: `split` in split.py.

Knows only protocol/knowledge. `cutter` is the heart (where a long text is cut); `prose`, `markdown`, `code`, `table`
and `items` know one kind of document each.
"""
