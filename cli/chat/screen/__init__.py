"""The chat's screen: what stands at the bottom of the terminal, and the keys.

It runs in a thread of its own with prompt_toolkit's loop; `threaded` starts it and gives the terminal back. `surface`
draws: settled lines once, live rows and the input below them. `application` puts the parts together: `field` is the
input (`paste`, `history`, `completion`), `questions` what is asked, `keys` what keys do.
"""
