"""Chats: conversations to which clients send lines, as a person types them at a prompt.

Start reading at `chat`: a chat is an object of the hub's process, with its state and one line at a time; `playing` says
what becomes of a line. `table` has the commands, a module per family in `commands/`; `place` says where what was said
lies, `prompting` plays a prompt as a run of the hub, `methods` answers `_chat/*` on a connection. What a command needs
of the person goes through `person`. The frames are those of protocol/control/chat.py.
"""
