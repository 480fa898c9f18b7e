"""Implementations of the control commands, one module each.

`listing` implements `ps`, `following` `attach` and `logs`, `answering` `answer` and `stop`, `stored_runs` `runs`.
`top` draws the rows of `actor_table`.
"""
