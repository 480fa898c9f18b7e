"""Shell integration: completion of words, and Alt-e, which turns the typed line into a command.

`scripts/` has a file per shell for each of the two; `commands` prints them. To complete words, a script calls
`callboard` with `_CALLBOARD_COMPLETE=words_complete` and the words: `completing` answers. That has to be fast, so slow
results are cached (`known_models`).
"""
