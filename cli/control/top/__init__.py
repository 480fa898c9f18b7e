"""`callboard top`: the actors of a server, live, and keys to steer them.

`table` knows what is shown of which actors and where the cursor is, `closer` what is shown of one; neither knows a
terminal. `screen` draws rows of text and `keys` reads what is pressed; `app` puts them together, and
`snapshot` does without.
"""
