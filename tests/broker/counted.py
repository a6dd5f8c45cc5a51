"""`python counted.py FILE worker …` is `sparkmirror worker …` that counts its requests: FILE tells how many of each kind it has
sent, and when each of its clients sent the first (monotonic, the same clock in all processes), as JSON."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from sparkmirror.cli import main
from sparkmirror.kafka import messages

_EVERY_S = 0.2


def count(file: Path) -> None:
    """Count from now on; the file is replaced as a whole, so that it can be read at any time."""
    requests: Counter[str] = Counter()
    firsts: dict[str, float] = {}
    counting = threading.Lock()
    encode = messages.encode

    def counted(request: Any, version: int, correlation_id: int, client_id: str) -> bytes:
        with counting:
            requests[request.name] += 1
            firsts.setdefault(client_id, time.monotonic())
        return encode(request, version, correlation_id, client_id)

    def write() -> None:
        draft = file.with_suffix(".new")
        while True:
            with counting:
                known = json.dumps({"requests": requests, "firsts": firsts})
            draft.write_text(known, encoding="ascii")
            draft.replace(file)
            pause.wait(_EVERY_S)

    messages.encode = counted
    pause = threading.Event()
    threading.Thread(target=write, daemon=True).start()


if __name__ == "__main__":
    count(Path(sys.argv.pop(1)))
    main()
