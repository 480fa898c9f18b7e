"""The Model Context Protocol as it is written: messages, what is in them, and the file that names the servers."""
