"""Replay of a durable run from its rows: no request is sent, no process started, and no row written.

`book` has the rows and their use; `rows` has the parts of a durable run that compare with them. `effects` returns
external results from the rows, and `ordering` preserves their order, with `clock`. Begin with `ordering`.
"""
