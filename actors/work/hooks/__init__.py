"""Hooks of the user, of a trusted workspace and of programs: commands and functions that have a say in what a run does.

    hooks      who is asked, at what, with which input; commands are supervised processes in the run's sandbox
    calls      before and after one tool call
    session    around a run
    answers    what one has said, and what all of them said come to

`hooks` is the way in.
"""
