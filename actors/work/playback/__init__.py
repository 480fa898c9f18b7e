"""Playback: the results of a run's models, tools, scripts and servers come from a record instead of the outside world.

    playback    interface `Playback`, and `done`, which code with an effect on the outside world calls first
    replies     events, usage and limits of a recorded model reply

A run without playback only pays for the lookup of a context variable. `runs/rerun` implements the interface for
cassettes and for replays. May import `protocol`, `supervisors`, and `models.codec` and `spending` of this layer. Start
with `playback.done`.
"""
