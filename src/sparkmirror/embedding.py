"""sparkmirror in a program that has a Spark session: the session and an mm2.properties in, a running mirror out.

mirror = sparkmirror.start(spark, "mm2.properties")
...
mirror.stop()
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkmirror.config.properties import read_properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkmirror.control.runner import MirrorMaker


class RunningMirror:
    """The flows of a file on a Spark session of others, which is never stopped by it.

    Invariant: when `stop` has returned True, no record is copied any more.
    """

    def __init__(self, maker: MirrorMaker) -> None:
        self._maker = maker
        self._error: BaseException | None = None
        self.exit_code: int | None = None
        """As the command `sparkmirror run` would have; None while it runs."""
        self._thread = threading.Thread(target=self._run, name="sparkmirror", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.exit_code = self._maker.run()
        except Exception as error:  # noqa: BLE001 - raised again for who waits
            self._error = error

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it ends by itself; whether it has. Raises what it ended with."""
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def stop(self, timeout: float = 60.0) -> bool:
        """End all flows in order; whether they have ended in time."""
        self._maker.stop()
        return self.wait(timeout)


def start(
    spark: SparkSession, file: str | Path, *, clusters: Sequence[str] | None = None
) -> RunningMirror:
    """Run the flows of an mm2.properties file on a running Spark session, in the background.

    `clusters`: only the flows into these. ConfigError if the file is wrong, if sparkmirror does not run on this PySpark, or if
    the session has no JVM of this process, as with Spark Connect. sparkmirror must be installed on the executors, or come with
    `spark.archives` (see `sparkmirror pack`).
    """
    # pyspark takes long to import, and most who import this package do not call this.
    from sparkmirror.spark.versions import require_installed

    require_installed()
    from sparkmirror.control.runner import MirrorMaker
    from sparkmirror.spark.jvm import AdoptedContext

    jvm = AdoptedContext.of(spark)
    return RunningMirror(MirrorMaker(read_properties(Path(file)), clusters, jvm))
