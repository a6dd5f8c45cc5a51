"""Several runs of one replicator: what is shown of them."""

from __future__ import annotations

from bench.runs import Outcome, middle


def test_the_median_of_each_metric_is_shown() -> None:
    runs = [
        Outcome({"a": 1.0, "b": 9.0}),
        Outcome({"a": 3.0, "b": 8.0}),
        Outcome({"a": 2.0, "b": 1.0}),
    ]
    assert middle(runs) == Outcome({"a": 2.0, "b": 8.0})


def test_a_run_that_failed_is_not_passed_over() -> None:
    assert middle([Outcome({"a": 1.0}), Outcome(failure="it ended")]).failure == "it ended"
