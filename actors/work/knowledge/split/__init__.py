"""Document splitting into chunks, along their structure and without loss: `split` in split.py.

This package depends only on protocol/knowledge. `cutter` chooses the positions of cuts, `split` handles prose, code and
tables, and `markdown` and `items` handle one kind of document each.
"""
