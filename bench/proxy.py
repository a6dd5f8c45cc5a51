"""A TCP proxy that delivers every byte a fixed time after it was sent, in both directions.

Run as a process of its own: `python -m bench.proxy LISTEN_PORT TARGET_PORT DELAY_MS`. It says
`ready` on its output once it listens.

A pure delay, no limit on what is under way: bytes are taken as they come and wait in memory, so
the link behaves like a long fat pipe. The handshake of TCP itself is not delayed.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import sys
import threading
import time

CHUNK = 1 << 20
LOCALHOST = "127.0.0.1"


class Pipe:
    """One direction of one connection: a reader that stamps, a writer that waits.

    Invariants: bytes leave in the order they came; none leaves before its time; the end of the
    stream passes with the same delay as the data before it.
    """

    def __init__(self, source: socket.socket, sink: socket.socket, delay: float) -> None:
        self._source = source
        self._sink = sink
        self._delay = delay
        self._under_way: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def start(self) -> list[threading.Thread]:
        threads = [threading.Thread(target=w, daemon=True) for w in (self._read, self._write)]
        for thread in threads:
            thread.start()
        return threads

    def _read(self) -> None:
        data = b"."
        while data:
            try:
                data = self._source.recv(CHUNK)
            except OSError:
                data = b""
            self._under_way.put((time.monotonic() + self._delay, data))

    def _write(self) -> None:
        while True:
            due, data = self._under_way.get()
            pause = due - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            try:
                if not data:
                    self._sink.shutdown(socket.SHUT_WR)
                    return
                self._sink.sendall(data)
            except OSError:
                # The other end is gone: let the reader notice, so that both threads end.
                with contextlib.suppress(OSError):
                    self._source.shutdown(socket.SHUT_RDWR)
                return


def link(near: socket.socket, far: socket.socket, delay: float) -> None:
    """Connects two sockets both ways until both directions have ended."""
    with near, far:
        for end in (near, far):
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for thread in (*Pipe(near, far, delay).start(), *Pipe(far, near, delay).start()):
            thread.join()


def serve(listener: socket.socket, target: tuple[str, int], delay: float) -> None:
    """Accepts until the listener is closed."""
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        try:
            far = socket.create_connection(target, timeout=10)
        except OSError:
            near.close()
            continue
        threading.Thread(target=link, args=(near, far, delay), daemon=True).start()


def main(arguments: list[str]) -> None:
    listen_port, target_port, delay_ms = (int(argument) for argument in arguments)
    with socket.create_server((LOCALHOST, listen_port), backlog=128) as listener:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        serve(listener, (LOCALHOST, target_port), delay_ms / 1000)


if __name__ == "__main__":
    main(sys.argv[1:])
