"""A run without the world: what its models, tools, scripts and servers came to is taken from a record.

Whoever does something to the world, or asks it, asks `playback` first. A run without one pays for the look at a context
variable. `replies` plays the reply of a model, with the events of a request.
"""
