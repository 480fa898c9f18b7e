"""Hooks of the user, of a trusted workspace and of programs: commands and functions that have a say in what a run does.

answers    what one has said, and what all of them said come to
command    runs one as a supervised process, in the run's sandbox
hooks      who is asked, at what, with which input
"""
