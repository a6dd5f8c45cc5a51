"""What Spark says of the query of a flow before anything runs: its settings in, problems by key out.

Whether a function can be loaded is known without Spark. For the query itself Spark is started if it is not there yet; if it
cannot be, nothing is said: whoever runs the query will.
"""

from __future__ import annotations

import logging

from sparkmirror.config.keys import Problem
from sparkmirror.config.query import FUNCTIONS, SQL, QueryConfig
from sparkmirror.dataplane.query.terms import QueryLimits, QuerySettings, QueryTerms
from sparkmirror.errors import ConfigError, QueryRefused, SparkError
from sparkmirror.spark.session import SparkSession

log = logging.getLogger(__name__)


class SparkCheck:
    """Looks at queries. May be called from any thread, and takes as long as Spark needs; what was right is not asked again."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, query: QueryConfig) -> list[Problem]:
        try:
            for name in query.functions:
                self._spark.may_call(name)
            _load(query)
        except QueryRefused as error:
            return [Problem(FUNCTIONS, str(error))]
        try:
            self._spark.start(queries=True)
            self._spark.queries.check(_settings(query))
        except ConfigError as error:
            return [Problem(SQL, str(error))]
        except SparkError as error:
            log.warning("A query could not be looked at before it runs: %s", error)
        return []


def _load(query: QueryConfig) -> None:
    if query.functions:
        # Spark SQL is large, and nobody without a function needs it here.
        from sparkmirror.dataplane.query.functions import load

        for name in query.functions:
            load(name, query.memory_mb << 20)


def _settings(query: QueryConfig) -> QuerySettings:
    """As far as they decide whether the query can be run."""
    return QuerySettings(
        QueryTerms(query.sql, query.functions, query.may_vary),
        QueryLimits(memory=query.memory_mb << 20),
    )
