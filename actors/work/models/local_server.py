"""Process of a local engine; run as `python -I local_server.py MODEL THREADS TOKENS [PLACES]`.

It loads the model, serves OpenAI's format on a free loopback port, and prints `{"url": ..., "key": ...}` as one line on
stdout. It exits when its stdin is closed. The engine runs in its own process because a crash of its native code must
not end the caller. The script is run by path, isolated from the current directory and the environment, and imports
nothing of callboard.

With PLACES it computes embeddings of that many texts at once, of up to TOKENS each. Otherwise it chats in a context of
TOKENS.
"""

from __future__ import annotations

import importlib
import json
import os
import secrets
import sys
from pathlib import Path


def main(model: str, threads: int, tokens: int, places: int = 0) -> None:
    """Serve until stdin is closed."""
    xllamacpp = importlib.import_module("xllamacpp")
    key = secrets.token_urlsafe(24)
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {Path(model).stem}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]  # without a key, the engine answers any web page that finds the port
    params.cors_origins = ""
    if places:
        params.embedding = True
        params.n_parallel = places
        params.n_ctx = params.n_batch = params.n_ubatch = tokens * places  # an embedding needs its text in one batch
    else:
        params.n_ctx = tokens
        params.n_parallel = 1  # several slots would divide the context among them
    params.n_threads_http = 4
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.verbosity = 1
    server = xllamacpp.Server(params)
    sys.stdout.write(json.dumps({"url": server.listening_address, "key": key}) + "\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    os._exit(0)  # the engine's own shutdown waits for requests in progress


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
