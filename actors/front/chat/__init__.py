"""Chats: conversations on the server to which clients send lines, as a user types them at a prompt.

Start with `chat.Chat`, the state of one conversation. `execution.execute_line` executes a line: it finds the command
(`command_line.ChatCommand`; a module per family in `commands/`), runs a shell line, or sends a prompt (`prompting`),
which becomes a run of the hub. `chat_storage.ChatStorage` has the messages, `options` the `.set` keys.
`clients.ClientPort` is the client that sends a line, as commands see it; `methods` serves `_chat/*` on a connection.
`methods.opened` begins a chat, `completion` completes the line being typed. protocol/control/chat.py has the frames.
The package imports `control` and `runs`; only `server` and `cli` import it.
"""
