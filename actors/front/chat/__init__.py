"""Chats: conversations on the server to which clients send lines, as a user types them at a prompt.

Start with `chat`: a chat is an object of the hub's process, with its state and one line at a time. `playing` executes
lines. `table` defines commands, with a module per family in `commands/`. `place` stores messages, `prompting` executes
a prompt as a run of the hub, and `methods` serves `_chat/*` on a connection. Commands reach the user through `person`.
protocol/control/chat.py has the frames.
"""
