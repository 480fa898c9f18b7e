"""First configuration: detection of usable models, and the text of a config.yaml for one of them.

`detect` makes an offer of each key, server on this machine, and model that is available. `address` looks up a server at
a typed address. `write_config` is the text of a file for one offer, new or added to an existing file. `needed` tests
whether there is no configuration at all; it runs at each start, so it imports next to nothing. The questions to the
user belong to the front end. May import work/models, `io` and `protocol`. Start with `detect`.
"""
