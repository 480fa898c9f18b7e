"""What the commands do, one module each: `listing` is behind `ps`, `following` behind `logs`, `attaching` behind
`attach`, `answering` behind `answer` and `stop`, `kept` behind `runs`; `relay` is what `attach` and `logs` write.
"""
