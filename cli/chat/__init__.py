"""Terminal chat: `callboard` without a command, and `callboard chat`.

The chat is a client of the control channel. The chat actor behind it interprets the lines (`_chat/*`); the client
follows runs by their events (`_run/subscribe`) and answers their questions (`_question/*`). So the same code serves a
hub in this process and one behind a websocket (`--url`).

There are two threads. Trio runs in the main thread: the root, its hub, the connection (`local`, `remote`), signals. The
screen (`screen/`) runs in its own thread with prompt_toolkit and an asyncio loop. `conversation` controls it and orders
lines, `client` sends requests, and `display` owns the scrollback and renders runs. `following` subscribes to runs,
`reconnect` opens or attaches to a chat, also after a lost connection, and `server_requests` answers requests of the
server. The threads exchange only frames (`bridge`). `program` starts both, ends both, and restores the terminal. The
first prompt appears before the server's half is imported.

This package imports `protocol`, `actors.front` (in `local` and `remote` only) and `..render`. Names to know:
`ChatConversation`, `ChatScreen`, `ChatStory`, `ScreenOutput`, `ChatClient`. Start with `program`.
"""
