"""Our assignor and Connect's own, led through the same life of a group: they decide alike, round by round."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from java_source import ask_java

from sparkmirror.control.assignor import GroupPlan, IncrementalAssignor, Item, items_of
from sparkmirror.control.states import Assignment, ClusterConfig, TaskId

_SCENARIOS = 300
_ROUNDS = 25
_MAX_DELAY_MS = 60_000
_NAMES = "ABCDEFGHIJKLMNO"
"""In Java's sets these have the order they have here."""


@dataclass
class _Life:
    """A group whose workers come and go, whose connectors are made and removed, as its leader sees it."""

    rng: random.Random
    max_delay_ms: int
    counts: dict[str, int] = field(default_factory=dict)
    members: dict[str, frozenset[Item]] = field(default_factory=lambda: {"A": frozenset()})
    gone: dict[str, frozenset[Item]] = field(default_factory=dict)
    now_ms: int = 1000
    generation: int = 0
    made: int = 0

    def happen(self) -> None:
        """Something that makes the group meet again."""
        rng = self.rng
        self.now_ms += rng.choice((7, 50, 1900, self.max_delay_ms // 2, self.max_delay_ms + 9))
        for _ in range(rng.randint(0, 2)):
            event = rng.choice(
                ("create", "create", "delete", "resize", "join", "join", "die", "return")
            )
            getattr(self, f"_{event}")()

    def _create(self) -> None:
        self.made += 1
        self.counts[f"connector-{self.made:03}"] = self.rng.randint(0, 6)

    def _delete(self) -> None:
        if self.counts:
            del self.counts[self.rng.choice(list(self.counts))]

    def _resize(self) -> None:
        if self.counts:
            self.counts[self.rng.choice(list(self.counts))] = self.rng.randint(0, 6)

    def _join(self) -> None:
        free = [name for name in _NAMES if name not in self.members and name not in self.gone]
        if free:
            self.members[free[0]] = frozenset()

    def _die(self) -> None:
        """Never the leader: another one would know nothing of what was."""
        if len(self.members) > 1:
            name = self.rng.choice(sorted(self.members)[1:])
            self.gone[name] = self.members.pop(name)

    def _return(self) -> None:
        """One that was away, with its work still running: if that was given away, two run it now."""
        if self.gone:
            name = self.rng.choice(sorted(self.gone))
            items = self.gone.pop(name)
            alive = {TaskId(c, n) for c, count in self.counts.items() for n in range(count)}
            self.members[name] = frozenset(items & (alive | set(self.counts)))

    def config(self) -> ClusterConfig:
        return ClusterConfig(
            offset=1, connectors={name: {} for name in self.counts}, task_counts=dict(self.counts)
        )

    def line(self) -> str:
        counts = ",".join(f"{name}:{count}" for name, count in self.counts.items())
        parts = [f"round\t{self.now_ms}\t{self.generation}\t{self.generation + 1}\t{counts}"]
        for name, items in sorted(self.members.items()):
            owned = _assignment(items)
            tasks = ",".join(f"{t.connector}:{t.task}" for t in owned.tasks)
            parts.append(f"{name}={','.join(owned.connectors)}/{tasks}")
        return "\t".join(parts)


def _assignment(items: frozenset[Item]) -> Assignment:
    return Assignment(
        tuple(sorted(item for item in items if isinstance(item, str))),
        tuple(sorted(item for item in items if isinstance(item, TaskId))),
    )


def _told(assignment: Assignment) -> str:
    tasks = (f"{task.connector}:{task.task}" for task in assignment.tasks)
    return ",".join(sorted((*assignment.connectors, *tasks)))


def _answer(plan: GroupPlan) -> str:
    parts = [
        f"{name}={_told(share.assigned)}/{_told(share.revoked)}"
        for name, share in sorted(plan.members.items())
    ]
    return "\t".join((str(plan.delay_ms), *parts))


def _live(seed: int) -> tuple[list[str], list[str]]:
    """The rounds of one life as Java is asked them, and what ours answers."""
    rng = random.Random(seed)
    life = _Life(rng, rng.choice((0, 2000, _MAX_DELAY_MS)))
    assignor = IncrementalAssignor(life.max_delay_ms)
    asked, answers = [f"new\t{life.max_delay_ms}"], []
    last = -1
    for _ in range(_ROUNDS):
        life.happen()
        asked.append(life.line().replace(f"\t{life.generation}\t", f"\t{last}\t", 1))
        last = life.generation + 1
        plan = assignor.assign(
            life.config(),
            {name: _assignment(items) for name, items in life.members.items()},
            generation=last,
            last_generation=life.generation if life.generation else -1,
            now_ms=life.now_ms,
        )
        life.generation = last
        life.members = {
            name: (life.members[name] - items_of(share.revoked)) | items_of(share.assigned)
            for name, share in plan.members.items()
        }
        answers.append(_answer(plan))
    return asked, answers


def _is_hasty(asked: str, answer: str) -> bool:
    """Java can give a returning worker more than its share and, in the same breath, take that or other work from it; ours
    gives the rest to another at once. What comes after that is another life."""
    members = [part.split("=") for part in asked.split("\t")[5:]]
    owned = Counter(item for _, items in members for item in items.replace("/", ",").split(","))
    counts = dict(part.rsplit(":", 1) for part in asked.split("\t")[4].split(",") if part)
    for part in answer.split("\t")[1:]:
        assigned, revoked = (share.split(",") for share in part.split("=")[1].split("/"))
        for item in filter(None, revoked):
            connector, _, task = item.partition(":")
            is_wanted = connector in counts and (not task or int(task) < int(counts[connector]))
            is_given = any(a and (":" in a) == (":" in item) for a in assigned)
            if is_wanted and owned[item] < 2 and (is_given or owned[item] == 0):
                return True
    return False


def test_every_round_is_decided_as_java_decides_it() -> None:
    lives = [_live(seed) for seed in range(_SCENARIOS)]
    answers = iter(ask_java("AssignorPeer", [line for asked, _ in lives for line in asked]))
    compared = kinds = 0
    for seed, (asked, ours) in enumerate(lives):
        theirs = [next(answers) for _ in ours]
        for number, (line, their, our) in enumerate(zip(asked[1:], theirs, ours, strict=True)):
            if _is_hasty(line, their):
                break
            our_delay, their_delay = int(our.split("\t")[0]), int(their.split("\t")[0])
            where = f"life {seed}, round {number}: {line}"
            assert our.split("\t")[1:] == their.split("\t")[1:], where
            assert abs(our_delay - their_delay) <= 1, where  # Java rounds its back-off down
            compared += 1
            kinds |= 1 << (any(part.split("/")[1] for part in our.split("\t")[1:]))
            kinds |= 4 if not our.startswith("0\t") else 0
    assert compared > _SCENARIOS * _ROUNDS * 0.8
    assert kinds == 7, "rounds with and without revocation, and with a delay"
