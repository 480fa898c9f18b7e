"""Reasoning options of requests, and stored reasoning of replies.

- `effort`: levels and token budgets of requests.
- `families`: capabilities of models by name.
- `claude`: rules of Claude on every platform.
- `stored_reasoning`: reasoning items in a conversation.
- `tags`: separation of `<think>` text from the answer.

The codecs import this package; it imports none of them.
"""
