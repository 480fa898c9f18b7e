"""Playback: the results of a run's models, tools, scripts and servers come from a record instead of the outside world.

Code with an effect on the outside world, or a request to it, calls `playback` first. A run without playback only pays
for the lookup of a context variable. `replies` emits the events of a recorded model reply.
"""
