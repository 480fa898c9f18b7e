"""Implementations of the control commands, one module each.

`listing` implements `ps`, `following` `logs`, `attaching` `attach`, `answering` `answer` and `stop`, `stored_runs`
`runs`. `relay` writes the output of `attach` and `logs`.
"""
