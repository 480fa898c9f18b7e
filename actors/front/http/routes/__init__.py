"""The handlers of routes, a module per kind of thing. A handler gets a `Call` and what was sent, and gives a reply."""
