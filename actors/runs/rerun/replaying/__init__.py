"""A durable run is played once more by its rows: nothing is sent, no process is started, and no row is written.

`book` has the rows, and what was made of them; `rows` are the parts of a durable run that are held against them;
`effects` has what came from outside, and `turnstile` keeps its order, by `clock`. Begin with `turnstile`.
"""
