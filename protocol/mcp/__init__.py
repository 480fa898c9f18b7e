"""Model Context Protocol: its messages, their contents, and the file that configures servers."""
