"""What the commands do, one module each, named for what happens: `listing` is behind `ps`, `following` behind `logs`,
`attaching` behind `attach`, `answering`, `stopping`, `kept` behind `runs`; `relay` is what `attach` and `logs` write.
"""
