"""A cluster whose clients see its brokers through proxies; tests themselves talk to the brokers (`internal_bootstrap`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from broker_proxy import BrokerProxy, Shown
from kafka_tools import QUICK_JVM

from sparkmirror.tools.clusters import KafkaCluster


class ShownCluster(KafkaCluster):
    """Its `bootstrap` and what its brokers advertise are the proxies."""

    def __init__(
        self,
        name: str,
        brokers: int,
        directory: Path,
        shown: Shown,
        properties: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(name, brokers, directory, properties, jvm=QUICK_JVM, **more)
        self.proxies: dict[int, BrokerProxy] = {}
        for node in self.nodes:
            host, _, port = super().address(node).partition(":")
            self.proxies[node] = BrokerProxy((host, int(port)), shown)

    def address(self, node: int) -> str:
        return self.proxies[node].address

    def _settings(self, node: int) -> dict[str, str]:
        settings = super()._settings(node)
        direct = f"CLIENT://{super().address(node)}"
        shown = settings["advertised.listeners"].replace(direct, f"CLIENT://{self.address(node)}")
        return {**settings, "advertised.listeners": shown}

    def __enter__(self) -> Self:
        for proxy in self.proxies.values():
            proxy.__enter__()
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        for proxy in self.proxies.values():
            proxy.__exit__(kind, error, trace)
