"""Helper that runs in a new network namespace without callboard: opens a socket there and sends it out. See
`egress`."""

import os
import socket
import sys


def main(out: int) -> None:
    """Send a listening socket, the user namespace and the network namespace over the descriptor `out`."""
    with socket.socket() as listening, socket.socket(fileno=out) as told:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        spaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("user", "net")]
        socket.send_fds(told, [b"ready"], [listening.fileno(), *spaces])


if __name__ == "__main__":
    main(int(sys.argv[1]))
