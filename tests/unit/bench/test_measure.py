"""CPU and memory of a process tree, on real processes."""

from __future__ import annotations

import subprocess
import sys
import time

from bench.measure import ProcessTree, parse_stat

BURN = "import time\nend = time.process_time() + {seconds}\nwhile time.process_time() < end: pass\n"
# A child that ends, and one that outlives the parent that started it; both must be counted.
FAMILY = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {BURN.format(seconds=0.5)!r}])
middle = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]])"
subprocess.run([sys.executable, "-c", middle, {(BURN.format(seconds=0.5) + "time.sleep(60)")!r}])
sys.stdout.write("started\\n")
sys.stdout.flush()
sys.stdin.read()
"""


def test_stat_is_read_whatever_the_command_is_called() -> None:
    line = "42 (a) b (c)) S 7 42 9 0 -1 4194560 1 0 0 0 250 150 0 0 20 0 1 0 100 1000 10"
    stat = parse_stat(line)
    assert (stat.parent, stat.session) == (7, 9)
    assert stat.cpu_seconds == 4.0


def test_children_that_ended_or_were_orphaned_are_counted() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FAMILY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    tree = ProcessTree(process.pid)
    orphans: list[int] = []
    try:
        with tree:
            assert process.stdout.readline() == b"started\n"
            until = time.monotonic() + 20
            while tree.cpu_seconds() < 0.95 and time.monotonic() < until:
                time.sleep(0.05)
            assert 0.85 <= tree.cpu_seconds() < 3
            orphans = [pid for pid in tree.pids() if pid != process.pid]
            assert len(orphans) == 1
            now = time.monotonic()
            memory = tree.memory(now - 60, now + 60)
            assert 2e6 < memory.mean_bytes <= memory.peak_bytes < 500e6
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(10)
        for pid in orphans:
            subprocess.run(["/bin/kill", "-9", str(pid)], check=False)
