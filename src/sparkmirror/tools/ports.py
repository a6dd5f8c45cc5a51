"""TCP ports of this machine for the programs that tests and the demo start."""

from __future__ import annotations

import random
import socket

# Below the range from which Linux takes the local ports of outgoing connections: a client that
# keeps trying to reach a dead broker can otherwise be given the broker's own port, and the broker
# cannot come back.
_PORTS = range(12_000, 32_000)
_taken: set[int] = set()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on, never handed out before by this process."""
    while True:
        port = random.choice(_PORTS)  # noqa: S311 - not a secret
        if port in _taken:
            continue
        with socket.socket() as attempt:
            try:
                attempt.bind(("127.0.0.1", port))
            except OSError:
                continue
        _taken.add(port)
        return port
