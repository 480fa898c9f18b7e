"""Hooks of the user, of a trusted workspace and of the calling program: commands and functions that influence a run.

    hooks      selection of hooks for an event, their input and execution; commands run in the run's sandbox
    calls      hooks before and after one tool call
    session    hooks around a run
    answers    parsing and merging of the hooks' answers

`hooks` is the entry point.
"""
