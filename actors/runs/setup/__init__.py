"""The first configuration: which models can be used here, and what a config.yaml says to use one.

`found` makes an `Offer` of each key, server (`servers`) and model that is here; `written` is the text of a file for
one, new or added to what is there; `needed` says whether there is no configuration at all. What people are asked is the
front end's.
"""
