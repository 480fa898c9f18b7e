"""`callboard top`: the actors of a server, live, and keys to steer them.

`table` knows what is shown of which actors and where the cursor is, and no terminal. `terminal` draws rows of text
and reads what is pressed; `app` puts them together, or does without.
"""
