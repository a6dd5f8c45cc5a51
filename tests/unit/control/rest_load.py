"""A client that asks at a given rate, as a program of its own: port, rate and seconds come in, times go out as JSON.

For every request: how late the client itself was to send it, and when it was answered, both from when it was due.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

_PATHS = (b"/connectors/c/status", b"/connectors", b"/")
_CONNECTIONS = 16


Times = list[tuple[float, float]]


async def _ask(port: int, first: float, every: float, count: int) -> Times:
    """One connection. A request waits for the answer to the one before: a server that falls behind shows it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times = []
    for number in range(count):
        due = first + number * every
        ahead = due - time.perf_counter()
        if ahead > 0:
            await asyncio.sleep(ahead)
        # Late because of an earlier answer is the server's fault, late after a sleep is the machine's.
        late = time.perf_counter() - due if ahead > 0 else 0.0
        path = _PATHS[number % len(_PATHS)]
        writer.write(b"GET %s HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n" % path)
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]
        await reader.readexactly(int(length))
        if not head.startswith(b"HTTP/1.1 200 "):
            raise AssertionError(head)
        times.append((late, time.perf_counter() - due))
    writer.close()
    return times


async def _load(port: int, rate: float, seconds: float) -> Times:
    start, every = time.perf_counter() + 0.2, _CONNECTIONS / rate
    each = [
        _ask(port, start + every * i / _CONNECTIONS, every, int(seconds / every))
        for i in range(_CONNECTIONS)
    ]
    return [time for times in await asyncio.gather(*each) for time in times]


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.stdout.write(
        json.dumps(asyncio.run(_load(int(given[0]), float(given[1]), float(given[2]))))
    )
