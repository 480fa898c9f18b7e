"""Agents that several tests run."""

from __future__ import annotations

HELLO = """
start: a
nodes:
  a: {type: end, output: "hello {{initial_prompt}}"}
"""

ASKER = """
start: ask
nodes:
  ask: {type: approval, question: "Which?", options: [red, blue], routes: {red: done, blue: done}, on_other: done,
        state_updates: {colour: "{{choice}}"}}
  done: {type: end, output: "chose {{colour}}"}
"""

LOOP = """
instructions: You are brief.
can_ask_user: false
"""
