"""Document splitting into chunks, along their structure and without loss: `split` in split.py.

This package depends only on protocol/knowledge. `cutter` chooses the positions of cuts, and `split` handles each kind
of document: prose, code, tables, Markdown, JSON.
"""
