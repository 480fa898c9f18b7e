"""What the commands do, one module each, named for what happens: `listing` is behind `ps`, `following` behind `logs`,
`attaching` (with `desk` and `relay`) behind `attach`, `answering`, `stopping`, and `kept` behind `runs`.
"""
