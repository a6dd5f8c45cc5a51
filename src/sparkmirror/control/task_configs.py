"""The task configs of this worker's connectors: what a connector wants in; the config topic, or the leader, told out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

from sparkmirror.config.worker import SigningConfig
from sparkmirror.errors import ConnectError, NotHere, SparkMirrorError
from sparkmirror.kafka.cluster import back_off

from .config_store import ConfigStore
from .forwarding import WorkerClient
from .group_assignment import Group
from .herding import Signature
from .requests import RequestQueue
from .signing import sign
from .states import TargetState
from .worker import Worker

log = logging.getLogger(__name__)
_RETRY_S = (0.25, 10.0)
NOT_USED = "NOTUSED"
"""The address of a node that other nodes cannot call. They have the same file, so each writes the tasks of its own connectors."""

Configs = list[dict[str, str]]


class TaskConfigs:
    """Keeps the stored task configs as the connectors want them.

    Invariants: a wish for new task configs is never lost: what cannot be written or passed on now is tried again until it is out
    of date. Of one connector at most one message to the leader is under way. All but `look` runs in the herder's thread, or in
    the thread of such a message.
    """

    def __init__(
        self, signing: SigningConfig, configs: ConfigStore, worker: Worker, requests: RequestQueue
    ) -> None:
        self._signing = signing
        self._configs = configs
        self._worker = worker
        self._requests = requests
        self.group: Group | None = None
        self.client = WorkerClient()
        self._under_way: dict[str, bool] = {}
        """Connectors whose task configs are on their way to the leader; whether they have changed since."""

    def look(self, name: str) -> None:
        """A connector may want other tasks. From any thread."""
        self._requests.soon(lambda: self._follow(name, back_off(*_RETRY_S)))

    def _follow(self, name: str, waits: Iterator[float]) -> None:
        """Have the tasks of a connector be what it wants them to be."""
        config = self._configs.snapshot()
        if name not in config.connectors or config.target_state(name) is not TargetState.STARTED:
            return
        try:
            wanted = self._worker.task_configs(name)
        except SparkMirrorError as error:  # the old tasks go on meanwhile
            self._again(name, error, waits)
            return
        if wanted is None:
            return
        known = [config.tasks.get(task) for task in config.tasks_of(name)]
        if name in config.task_counts and known == wanted and name not in config.inconsistent:
            return
        self._publish(name, wanted, waits)

    def _publish(self, name: str, wanted: Configs, waits: Iterator[float]) -> None:
        group = self.group
        if group is None or not (group.is_leader or group.leader_url == NOT_USED):
            self._pass_on(name, wanted, waits)
            return
        try:
            self._configs.put_task_configs(name, wanted)
        except ConnectError as error:
            self._again(name, error, waits)

    def _again(self, name: str, error: SparkMirrorError, waits: Iterator[float]) -> None:
        wait = next(waits)
        log.info("Task configs of %s: %s Trying again in %.1f s.", name, error, wait)
        self._requests.soon(lambda: self._follow(name, waits), wait)

    # -- to the leader --------------------------------------------------------------------------------

    def _pass_on(self, name: str, wanted: Configs, waits: Iterator[float]) -> None:
        if name in self._under_way:  # one at a time; the last word is asked for anew
            self._under_way[name] = True
            return
        self._under_way[name] = False
        threading.Thread(
            target=self._post, args=(name, wanted, waits), name=f"tasks of {name}", daemon=True
        ).start()

    def _post(self, name: str, wanted: Configs, waits: Iterator[float]) -> None:
        try:
            url = None if self.group is None else self.group.leader_url
            if not url:
                raise NotHere("The leader of the group is not known yet.")
            self.client.post_task_configs(url, name, wanted, self._sign)
        except SparkMirrorError as error:
            self._again(name, error, waits)
        finally:
            self._requests.soon(lambda: self._posted(name))

    def _posted(self, name: str) -> None:
        if self._under_way.pop(name, False):
            self.look(name)

    def _sign(self, body: bytes) -> Signature:
        key = self._configs.snapshot().session_key
        if key is None:
            raise ConnectError("There is no session key yet to sign with.")
        algorithm = self._signing.signature_algorithm
        return Signature(sign(key, body, algorithm), algorithm, body)
