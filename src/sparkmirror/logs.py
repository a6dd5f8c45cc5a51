"""How every process of ours logs: one line an event on standard error."""

from __future__ import annotations

import logging
import sys

_FORMAT = "%(asctime)s %(levelname)s %(message)s"


def log_to_stderr() -> None:
    """Once per process; libraries that talk much are kept short."""
    if logging.getLogger().handlers:
        return
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=_FORMAT)
    for name in ("kafka", "aiokafka"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # py4j logs a broken socket with its trace, and raises it too: that is enough.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
