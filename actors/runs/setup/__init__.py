"""First configuration: detection of usable models, and the text of a config.yaml for one of them.

`found` makes an offer of each key, server (`servers`) and model that is available. `written` is the text of a file
for one offer, new or added to an existing file. `needed` tests whether there is no configuration at all. The
questions to the user belong to the front end.
"""
