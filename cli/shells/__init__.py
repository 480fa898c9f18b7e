"""What shells get of us: completion of words, and Alt-e, which makes a command of the line that was typed.

`scripts/` has a file per shell for each of the two; `commands` prints them. When a script wants words completed, it
calls us with `_CALLBOARD_COMPLETE=words_complete` and the words: `completing` answers. That has to be fast, so what
takes long to find is kept (`known_models`).
"""
