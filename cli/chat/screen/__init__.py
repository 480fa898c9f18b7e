"""Chat screen: the bottom of the terminal, and key bindings.

It runs in its own thread with prompt_toolkit's loop; `threaded` starts it and restores the terminal. `surface` draws
settled lines once, and live rows and the input below them. `application` combines the parts: `field` is the input with
its pastes and its history, `questions` the open questions. The key bindings are in `application`, since each of them is
a method of the screen.
"""
