"""How every process of ours logs: one line an event on standard error, without secrets."""

from __future__ import annotations

import logging
import sys
import threading

from sparkmirror.veil import VEIL

_FORMAT = "%(asctime)s %(levelname)s %(message)s"
log = logging.getLogger(__name__)


class _Veiled(logging.Formatter):
    """Hides secrets in the whole line, traces of exceptions too.

    A message stays in its line: a broker's text or a name in it may have line ends, and what terminals take for commands.
    """

    def format(self, record: logging.LogRecord) -> str:
        return VEIL.hide(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = record.message
        if not text.isprintable():
            record.message = "".join(map(_visible, text))
        return super().formatMessage(record)


def _visible(character: str) -> str:
    return character if character.isprintable() else repr(character)[1:-1]


def log_to_stderr() -> None:
    """Once per process; libraries that talk much are kept short."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Veiled(_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name in ("kafka", "aiokafka"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # py4j logs a broken socket with its trace, and raises it too: that is enough.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    threading.excepthook = _log_crash


def _log_crash(crash: threading.ExceptHookArgs) -> None:
    """What ends a thread of ours by mistake is logged as the rest is; Python would print it as it is."""
    if crash.exc_value is None or isinstance(crash.exc_value, SystemExit):
        return
    name = crash.thread.name if crash.thread is not None else "that is gone"
    log.error("Thread %s crashed.", name, exc_info=crash.exc_value)
