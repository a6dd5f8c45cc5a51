"""Hosts in network namespaces: names in; machines with addresses of their own that can be slowed down and cut off out.

All hosts are on one switch, a bridge in a namespace of its own: nothing reaches the network of this machine, or comes from it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from slow_line import SlowLine, new_end

from sparkmirror.tools.machine import Machine

_NAMESPACES = Path("/run/netns")
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_ADDRESS = "10.77.0.{}"


def can_make_hosts() -> bool:
    """Whether this user may make network namespaces, with the tools and devices that are there."""
    has_tools = all(shutil.which(tool) for tool in ("ip", "tc"))
    return os.geteuid() == 0 and has_tools and Path("/dev/net/tun").exists()


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Host:
    """One host, on the switch; what it sends and gets may take its time (`delay_s`, each way)."""

    def __init__(self, namespace: str, switch: str, number: int, delay_s: float = 0.0) -> None:
        self._namespace, self._switch = namespace, switch
        self._port = f"port{number}"
        self._line: SlowLine | None = None
        self.address = _ADDRESS.format(number)
        _run("ip", "netns", "add", namespace)
        if delay_s:
            with _inside(switch):
                near = new_end(self._port)
            with _inside(namespace):
                far = new_end("eth0")
            self._line = SlowLine(near, far, delay_s)
        else:
            _run("ip", "-n", switch, "link", "add", self._port, "type", "veth",
                 "peer", "name", "eth0", "netns", namespace)  # fmt: skip
        _run("ip", "-n", switch, "link", "set", self._port, "master", "switch", "up")
        _run("ip", "-n", namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", namespace, "link", "set", device, "up")

    @property
    def machine(self) -> Machine:
        return Machine(self.address, ("ip", "netns", "exec", self._namespace))

    def cut_off(self) -> None:
        """Pull its network cable; nobody hears that connections have ended."""
        _run("ip", "-n", self._switch, "link", "set", self._port, "down")

    def join(self) -> None:
        """Put the cable back."""
        _run("ip", "-n", self._switch, "link", "set", self._port, "up")

    def lose(self, *others: Host) -> None:
        """Cut the way to some hosts alone."""
        for other in others:
            _run("ip", "-n", self._namespace, "route", "add", "blackhole", f"{other.address}/32")

    def find(self, *others: Host) -> None:
        for other in others:
            _run("ip", "-n", self._namespace, "route", "del", "blackhole", f"{other.address}/32")

    def limit(self, mbit: int) -> None:
        """So many megabits a second leave this host at most."""
        _run("tc", "-n", self._namespace, "qdisc", "replace", "dev", "eth0", "root", "tbf",
             "rate", f"{mbit}mbit", "burst", "256k", "latency", "100ms")  # fmt: skip

    @property
    def sent_bytes(self) -> int:
        """What has left this host so far."""
        statistics = ("cat", "/sys/class/net/eth0/statistics/tx_bytes")
        return int(_run(*self.machine.enter, *statistics))

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Have this thread, and the threads that it starts, use the network of the host."""
        with _inside(self._namespace):
            yield

    def remove(self) -> None:
        """End what runs on it, and the host."""
        for pid in _run("ip", "netns", "pids", self._namespace).split():
            if int(pid) != os.getpid():
                os.kill(int(pid), signal.SIGKILL)
        if self._line is not None:
            self._line.close()
        _run("ip", "netns", "delete", self._namespace)


class Network:
    """Hosts by name, until the block is left; those in `delays` are so many seconds away."""

    def __init__(self, *names: str, delays: Mapping[str, float] | None = None) -> None:
        self._delays = dict.fromkeys(names, 0.0) | dict(delays or {})
        self._prefix = f"sm-{uuid.uuid4().hex[:6]}"
        self._switch = f"{self._prefix}-switch"
        self._hosts: dict[str, Host] = {}

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __enter__(self) -> Self:
        _run("ip", "netns", "add", self._switch)
        _run("ip", "-n", self._switch, "link", "add", "switch", "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "switch", "up")
        for number, (name, delay_s) in enumerate(self._delays.items(), 1):
            self._hosts[name] = Host(f"{self._prefix}-{name}", self._switch, number, delay_s)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for host in self._hosts.values():
            host.remove()
        _run("ip", "netns", "delete", self._switch)


@contextmanager
def _inside(namespace: str) -> Iterator[None]:
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    _enter(_NAMESPACES / namespace)
    try:
        yield
    finally:
        _set_network(before)
        os.close(before)


def _enter(namespace: Path) -> None:
    opened = os.open(namespace, os.O_RDONLY)
    try:
        _set_network(opened)
    finally:
        os.close(opened)


def _set_network(opened: int) -> None:
    """As `os.setns` of Python 3.12 does."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(opened, _NEW_NETWORK) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
