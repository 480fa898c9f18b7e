"""Documents cut into chunks, by their structure, with nothing lost: `split` in split.py.

Knows only protocol/knowledge. `cutter` says where a long text is cut, `split` reads prose, code and tables, `markdown`
and `items` know one kind of document each.
"""
