"""`python -m bench`: runs the chosen workloads with both replicators and prints the ratios."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from bench import report, runs
from bench.peers import PEERS
from bench.stage import Stage, open_stage
from bench.workloads import WORKLOADS, Choice, Throughput, Workload
from sparkmirror.errors import SparkMirrorError

RESULTS = Path(__file__).with_name("results.json")

# Wide enough for the table in one piece where the output goes to a file.
LOG_WIDTH = 120
# The load average per core above which others are using the machine.
BUSY = 0.5


def run_workload(stage: Stage, workload: Workload, peers: Sequence[str]) -> dict[str, runs.Outcome]:
    """All replicators on one workload; one that fails does not keep the others from running."""
    stage.say(f"{workload.name}: {workload.title}: preparing")
    source = runs.prepare(stage, workload)
    stage.say(f"{workload.name}: {source.about}")
    outcomes: dict[str, list[runs.Outcome]] = {peer: [] for peer in peers}
    for number in range(workload.rounds if isinstance(workload, Throughput) else 1):
        for peer in reversed(peers) if number % 2 else peers:
            stage.say(f"{workload.name}: {peer} starts")
            outcome = run_once(stage, workload, source, peer)
            outcomes[peer].append(outcome)
            said = ", ".join(f"{key} {report.number(v)}" for key, v in outcome.metrics.items())
            failure, *_ = outcome.failure.splitlines() or ["nothing to measure"]
            stage.say(f"{workload.name}: {peer}: {said or failure}")
    stage.clear_source()
    return {peer: runs.middle(found) for peer, found in outcomes.items()}


def run_once(stage: Stage, workload: Workload, source: runs.Source, peer: str) -> runs.Outcome:
    try:
        return runs.Outcome(runs.run(stage, workload, source, PEERS[peer]))
    except SparkMirrorError as error:
        return runs.Outcome(failure=str(error))


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@click.command()
@click.option("--only", default="", help="Comma-separated workloads, such as W2,W5.")
@click.option("--peers", default=",".join(PEERS), help="Comma-separated replicators to run.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep data and logs here.")
def main(only: str, peers: str, keep: Path | None) -> None:
    """Compare sparkmirror with MirrorMaker 2.

    QUICK=1 runs W2 and W8 only; BENCH_SCALE=0.05 takes a twentieth of all records.
    """
    chosen = [name for name in peers.split(",") if name]
    known = {workload.name.upper(): workload.name for workload in WORKLOADS}
    choice = Choice(
        names=tuple(known.get(name.upper(), name) for name in only.split(",") if name),
        quick=os.environ.get("QUICK", "") not in ("", "0"),
        scale=float(os.environ.get("BENCH_SCALE", "1")),
    )
    strange = [*choice.unknown(), *(name for name in chosen if name not in PEERS)]
    if strange:
        raise click.UsageError(f"Unknown: {', '.join(strange)}.")
    signal.signal(signal.SIGTERM, interrupt)
    with tempfile.TemporaryDirectory(prefix="sparkmirror-bench-") as temporary:
        directory = (keep or Path(temporary)).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        sys.exit(compare(choice, chosen, directory))


def compare(choice: Choice, peers: Sequence[str], directory: Path) -> int:
    console = Console()
    if not console.is_terminal:
        console = Console(width=LOG_WIDTH)
    begin = time.monotonic()

    def say(text: str) -> None:
        # Texts of programs may look like markup.
        console.print(f"{time.monotonic() - begin:6.0f} s  {text}", highlight=False, markup=False)

    workloads = choice.workloads()
    about = {"scale": choice.scale, "quick": choice.quick, "peers": list(peers)}
    outcomes: dict[str, dict[str, runs.Outcome]] = {}
    load = os.getloadavg()[0]
    if load > BUSY * (os.cpu_count() or 1):
        say(f"other programs keep this machine busy (load {load:.1f}): expect unsteady ratios")
    with open_stage(directory, say, choice.scale) as stage:
        for number, workload in enumerate(workloads):
            # Who goes first changes from workload to workload, so that neither always has the
            # warmer brokers.
            order = peers if number % 2 == 0 else list(reversed(peers))
            outcomes[workload.name] = run_workload(stage, workload, order)
            report.write_results(RESULTS, workloads, outcomes, about)
    rows = report.rows_of(workloads, outcomes)
    console.print(report.table_of(workloads, rows))
    for failure in report.failures(outcomes):
        console.print(failure, style="red", markup=False)
    say("done")
    return 0 if report.passed(rows, outcomes) else 1


if __name__ == "__main__":
    main()
