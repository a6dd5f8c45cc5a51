"""The data source `sparkmirror` of Spark: options in, a table about the flows of a file out.

Spark 4 finds it by itself (`pyspark_sparkmirror`). It imports this module in every application that looks for data sources, so
what reads from Kafka is imported only when a table is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from sparkmirror.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from .flows import Flow

TABLES = ("lag", "positions", "offset_map", "groups")
_OPTIONS = ("file", "table", "flow", "worker")


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What a user wants to see."""

    file: Path
    table: str
    flow: str | None = None
    worker: Path | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """ConfigError for options that are missing, unknown or wrong."""
        # Names with a dot are Spark's own, which it may add.
        unknown = [name for name in options if name not in _OPTIONS and "." not in name]
        if unknown:
            raise ConfigError(
                f"The data source sparkmirror has no option {', '.join(sorted(unknown))}.",
                f"Use {', '.join(_OPTIONS)}.",
            )
        file, table = options.get("file"), options.get("table")
        if not file:
            raise ConfigError(
                "Option file is missing.",
                'Name the flows\' file: .option("file", "mm2.properties").',
            )
        if table not in TABLES:
            what = f"There is no table {table}." if table else "Option table is missing."
            raise ConfigError(what, f"Set option table to one of {', '.join(TABLES)}.")
        worker = options.get("worker")
        return cls(Path(file), table, options.get("flow"), Path(worker) if worker else None)


@dataclass
class FlowPartition(InputPartition):
    """A flow, which one Spark task reads: each of its internal topics is read as a whole, and most have one partition."""

    flow: Flow

    def __repr__(self) -> str:
        return f"FlowPartition({self.flow.name})"


class TableSource(DataSource):
    """`spark.read.format("sparkmirror")`."""

    @classmethod
    def name(cls) -> str:
        return "sparkmirror"

    def schema(self) -> str:
        from .columns import ddl

        return ddl(_table(TableOptions.parse(self.options).table).COLUMNS)

    def reader(self, schema: StructType) -> TableReader:
        return TableReader(TableOptions.parse(self.options))


class TableReader(DataSourceReader):
    """Reads one table: the file on the driver, the clusters on executors."""

    def __init__(self, options: TableOptions) -> None:
        self._options = options

    def partitions(self) -> list[FlowPartition]:
        from .flows import read_flows

        options = self._options
        flows = read_flows(options.file, options.flow, options.worker)
        return [FlowPartition(flow.with_files()) for flow in flows]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from sparkmirror.spark.worker import veiled
        from sparkmirror.veil import VEIL

        from .columns import batches

        table, flow = _table(self._options.table), cast(FlowPartition, partition).flow
        for cluster in flow.clusters:
            VEIL.learn(cluster.security.given())
        with veiled():
            yield from batches(table.COLUMNS, table.rows(flow))


def _table(name: str) -> Any:
    """The module of a table: `COLUMNS`, and `rows(flow)`."""
    return import_module(f".{name}", __package__)
