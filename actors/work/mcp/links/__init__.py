"""How messages reach a server and come back: over the pipes of a process, or over HTTP in its two ways."""
