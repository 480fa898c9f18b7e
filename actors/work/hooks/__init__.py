"""Hooks of the user, of a trusted workspace and of the calling program: commands and functions that influence a run.

    hooks      selection of hooks for an event, their input and execution; commands run in the run's sandbox
    answers    parsing of a hook's answer, and merging of the answers to one event

`Hooks.before` and `Hooks.after` are called around each tool call; `at_beginning`, `at_end`, `before_shortening` and
`over` around a run. May import `protocol`, `supervisors`, `actors/io`, and `journal`, `playback`, `sandbox` and `tools`
of this layer. Start with `Hooks.ask`.
"""
