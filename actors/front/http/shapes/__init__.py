"""Structs of requests and replies that several routes share, and runs in OpenAI's formats. No I/O."""
