"""Our Connect worker as a child process, to be called as Java's is: a cluster comes in, a REST address goes out."""

from __future__ import annotations

import sys
from pathlib import Path

from java_connect import ConnectWorker


class OurConnectWorker(ConnectWorker):
    """`sparkmirror worker FILE`, with the same settings as Java's worker."""

    def _command(self, config: Path) -> list[str]:
        return [sys.executable, "-m", "sparkmirror", "worker", str(config)]
