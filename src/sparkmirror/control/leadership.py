"""What a group's leader does in a rebalance: what each worker says of itself comes in, what each is to do goes out, as bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from sparkmirror.formats.membership import (
    CONFIG_MISMATCH,
    Subprotocol,
    WorkerAssignment,
    WorkerMetadata,
    decode_metadata,
    encode_assignment,
)
from sparkmirror.kafka.coordination import Member

from .assignor import GroupPlan, IncrementalAssignor, Item, deal_all, items_of
from .group_assignment import as_assignment, as_work
from .states import Assignment, ClusterConfig

log = logging.getLogger(__name__)


class Leadership:
    """What a worker does and knows as leader; kept through the rounds of others, as it may lead again.

    Invariant: `owner_url` speaks of the last round this worker led, or of none after `forget`.
    """

    def __init__(self, snapshot: Callable[[], ClusterConfig], max_delay_ms: int) -> None:
        self._snapshot = snapshot
        self._assignor = IncrementalAssignor(max_delay_ms)
        self._owners: Mapping[Item, str] = {}

    def owner_url(self, item: Item) -> str | None:
        return self._owners.get(item)

    def forget(self) -> None:
        """Work is being shared out again: who has what is not known until that is done."""
        self._owners = {}

    def share_out(
        self,
        said: Mapping[str, bytes],
        me: Member,
        protocol: Subprotocol,
        config: ClusterConfig,
        last_generation: int,
        now_ms: int,
    ) -> dict[str, bytes]:
        """Everybody's assignment. If another worker has read further in the config topic than this one, all are told to
        meet again: work is never shared out by a config that one of them knows to be old."""
        workers = {name: decode_metadata(metadata) for name, metadata in said.items()}
        newest = max(worker.config_offset for worker in workers.values())
        if config.offset < newest:
            config = self._snapshot()
        base = WorkerAssignment(me.id, workers[me.id].url, max(newest, config.offset))
        if config.offset < newest:
            log.info(
                "This worker leads group %s but has read the config topic only up to offset %s, another "
                "one up to %s: the group meets again.",
                me.group,
                config.offset,
                newest,
            )
            failed = encode_assignment(replace(base, error=CONFIG_MISMATCH), protocol)
            return dict.fromkeys(workers, failed)
        if protocol is Subprotocol.EAGER:
            plan = deal_all(config, workers)
        else:
            plan = self._assignor.assign(
                config,
                {name: _owned(worker) for name, worker in workers.items()},
                generation=me.generation,
                last_generation=last_generation,
                now_ms=now_ms,
            )
        self._owners = _owners(plan, workers)
        if plan.kept:
            log.warning(
                "Group %s: %d connectors and tasks of a worker that has gone wait up to %.0f s for it to come back "
                "(scheduled.rebalance.max.delay.ms); then others get them.",
                me.group,
                plan.kept,
                plan.delay_ms / 1000,
            )
        return _encoded(plan, base, protocol)


def _owned(worker: WorkerMetadata) -> Assignment:
    return Assignment() if worker.assignment is None else as_assignment(worker.assignment.assigned)


def _owners(plan: GroupPlan, workers: Mapping[str, WorkerMetadata]) -> dict[Item, str]:
    return {
        item: workers[name].url
        for name, share in plan.members.items()
        for item in items_of(share.owned)
    }


def _encoded(plan: GroupPlan, base: WorkerAssignment, protocol: Subprotocol) -> dict[str, bytes]:
    base = replace(base, delay_ms=plan.delay_ms)
    return {
        name: encode_assignment(
            replace(base, assigned=as_work(share.assigned), revoked=as_work(share.revoked)),
            protocol,
        )
        for name, share in plan.members.items()
    }
