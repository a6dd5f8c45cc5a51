"""One partition on its way: fetch answers in, addressed batches out, acknowledgements in, a position out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Protocol

from sparkmirror.errors import CorruptBatch, RecordTooLarge, ReplicationError
from sparkmirror.formats.offset_map import NO_ID, TopicIds
from sparkmirror.formats.position import NO_FINGERPRINT, Fingerprint, Numbering, Position, advance
from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import NO_TOPIC_ID, TopicInfo
from sparkmirror.kafka.fetch import Fetched

from .addressing import Addresser, Sent
from .plan import CopySettings, PartitionPlan
from .stream import Piece, Stream

_UNHEARD_S = 1800.0  # far below the time after which brokers forget a producer (one day)
_FORGETTABLE_S = 3600.0
_NEVER = 1 << 62


class Budget:
    """Bytes fetched and not yet addressed, over all partitions of a task."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def has_room(self) -> bool:
        return self.used < self.limit


class Watcher(Protocol):
    """The copy task, as a partition sees it. Called from the loop, once per answer."""

    def acknowledged(self, copy: PartitionCopy, sent: Sent, base_offset: int) -> None:
        """The batch is on the target at `base_offset`; the position has moved."""

    def moved(self, copy: PartitionCopy) -> None:
        """The position has moved, with nothing to be told of offsets."""

    def changed(self, copy: PartitionCopy) -> None:
        """There may be more to send, or trouble to deal with."""


class Offers(Protocol):
    """Who sends what partitions have to send."""

    def offer(self, copy: PartitionCopy) -> None: ...


class PartitionCopy:
    """The state of one partition in a copy task.

    Invariants:
    - `position` (kept as single fields, since it moves with every batch) is what the target has acknowledged, and what behind it
      is not copied (control batches, aborted transactions); `_window` holds, in order and without a gap, the batches after it,
      the first `outstanding` of which are with the broker; `_ready` holds what was fetched after those. `_fed_to` is the last
      offset that was fetched to be copied: only from there may the position move over what is not.
    - Sequence numbers are given when a batch enters the window and never change (see `addressing`); only `restart` empties it.
    - While `trouble` is set nothing is sent; it is dealt with when nothing is outstanding any more.
    - Several batches are outstanding only while the leader is sure to remember the producer (`_is_remembered`): from one that it
      does not know it takes any number first, so that a batch could overtake one that was refused.
    """

    __slots__ = (
        "_addresser",
        "_base",
        "_budget",
        "_crc",
        "_done_sequence",
        "_fed_to",
        "_heard_at",
        "_is_remembered",
        "_leader_epoch",
        "_offset",
        "_ready",
        "_settings",
        "_stream",
        "_target_offset",
        "_topic_ids",
        "_watcher",
        "_window",
        "active",
        "attempts",
        "bytes",
        "fetch_attempts",
        "fetch_error",
        "fetch_trouble",
        "high_watermark",
        "key",
        "last_timestamp",
        "outstanding",
        "plan",
        "ready_bytes",
        "records",
        "source_epoch",
        "trouble",
        "trouble_text",
    )

    def __init__(
        self, plan: PartitionPlan, settings: CopySettings, budget: Budget, watcher: Watcher
    ) -> None:
        self.plan = plan
        self.key = plan.key
        self._settings = settings
        self._budget = budget
        self._watcher = watcher
        self._base = Position(-1)
        self._offset = -1
        self._fed_to = _NEVER
        self._done_sequence = 0
        self._target_offset = 0
        self._leader_epoch, self._crc = NO_FINGERPRINT
        self._topic_ids = b"", b""
        self._stream = Stream(0, settings.fetch.isolation)
        self._addresser = Addresser()
        self._ready: deque[Piece] = deque()
        self._window: deque[Sent] = deque()
        self._is_remembered = False
        self._heard_at = 0.0
        self.ready_bytes = 0
        self.outstanding = 0
        self.trouble = messages.NONE
        self.trouble_text: str | None = None
        self.fetch_trouble = messages.NONE
        self.fetch_error: ReplicationError | None = None
        self.active = False
        self.attempts = 0
        self.fetch_attempts = 0
        self.source_epoch = -1
        """The source partition's leader epoch in the metadata for which the position was resumed; -1: not known."""
        self.records = 0
        self.bytes = 0
        self.high_watermark = -1
        self.last_timestamp = -1

    @property
    def whole(self) -> PartitionCopy:
        """The copy of the source partition that this is (a part of)."""
        return self

    @property
    def retried_as(self) -> Hashable:
        """What the log of retries calls it."""
        return self.plan

    @property
    def is_home(self) -> bool:
        """Whether its records go where those of the source partition go by policy."""
        return True

    @property
    def maps_first(self) -> bool:
        """Whether the offset map must be written before the position: nobody could find out later which records went where."""
        return False

    @property
    def target_offset(self) -> int:
        """Where the next record is expected on the target; -1 if there are several targets."""
        return self._target_offset

    @property
    def routed(self) -> str:
        """The topics that transforms sent records to, with a space between; empty without transforms."""
        return ""

    @property
    def places(self) -> int:
        """The number of partitions of the target on which records are placed by their keys; 0: they stay in their own."""
        return 0

    @property
    def finishes_at(self) -> int:
        """The source offset up to which records pass through transforms that the plan has no more; -1 if there are none."""
        return -1

    @property
    def remotes(self) -> list[str]:
        """The topics on the target that it writes to."""
        return [self.plan.remote]

    def offer_to(self, sender: Offers) -> None:
        """Tell the sender that there is something to send."""
        sender.offer(self)

    # -- from the source ----------------------------------------------------------------------

    @property
    def fetch_offset(self) -> int:
        return self._stream.next_offset

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last batch read, for the broker to notice that its log diverged."""
        return self._stream.leader_epoch

    def feed(self, fetched: Fetched) -> None:
        """Take in what was fetched; where it is damaged, reading stops with `fetch_trouble`."""
        self.high_watermark = fetched.high_watermark
        self.fetch_attempts = 0
        if not fetched.records:
            return
        try:
            pieces = self._stream.feed(fetched)
        except CorruptBatch as error:
            self.fetch_trouble = messages.CORRUPT_MESSAGE
            self.fetch_error = CorruptBatch(
                f"{self.plan}: from offset {self.fetch_offset} on {error.message}",
                error.remedy
                or "Check the disks of the source's brokers (another replica may be whole); the copy goes on by itself. To leave "
                "the damaged records out, set the position of the partition behind them.",
            )
            return
        for piece in pieces:
            self.push(piece)
        if pieces:
            self._fed_to = pieces[-1].last_offset
        elif self._pass_over():
            self._watcher.moved(self)

    def _pass_over(self) -> bool:
        """Move the position over batches that are not copied, once everything before them is acknowledged; whether it moved.

        Retention may delete such batches: with the position before them they would be taken for lost records.
        """
        stream = self._stream
        if self._offset < self._fed_to or stream.next_offset <= self._offset + 1:
            return False
        self._offset = stream.next_offset - 1
        self._leader_epoch, self._crc = stream.leader_epoch, stream.crc
        return True

    def push(self, piece: Piece) -> None:
        """Take in one piece to be sent."""
        self._ready.append(piece)
        self._count(piece.size)

    def _count(self, size: int) -> None:
        self.ready_bytes += size
        self._budget.used += size

    @property
    def lag(self) -> int:
        """Source records (by offset) that are not on the target yet."""
        if self.high_watermark < 0:
            return -1
        idle = not self._ready and not self._window
        done = self._stream.next_offset if idle else self._offset + 1
        return max(0, self.high_watermark - done)

    # -- to the target ------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return bool(self._ready) or len(self._window) > self.outstanding

    @property
    def is_idle(self) -> bool:
        return not self._ready and not self._window

    @property
    def is_forgettable(self) -> bool:
        """Whether the leader may not know the last numbers it took: it keeps them for a day from the records' own time."""
        if not self._settings.exactly_once:
            return True
        head = self._window[0].pieces[-1].max_timestamp if self._window else self.last_timestamp
        return head < (time.time() - _FORGETTABLE_S) * 1000

    def next_batch(self) -> Sent | None:
        """The next batch to send, if one may be sent now; it counts as outstanding from here on."""
        if not self.active or self.trouble or self.outstanding >= self._settings.max_in_flight:
            return None
        if not self._may_send():
            return None
        if self.outstanding == len(self._window):
            if not self._ready:
                return None
            piece = self._ready[0]
            if (
                piece.batch is not None
                and not piece.is_small
                and len(piece.view) < self._addresser.limit
            ):
                self._ready.popleft()
                size = piece.size
                self.ready_bytes -= size
                self._budget.used -= size
                self._window.append(self._addresser.verbatim(piece, piece.batch))
            else:
                self._window.extend(self._addresser.address(self._take()))
        sent = self._window[self.outstanding]
        self.outstanding += 1
        return sent

    def _may_send(self) -> bool:
        """Whether the target's leader will hold the next number against the last; if that is in doubt, look first."""
        if self.outstanding:
            return self._is_remembered
        if self.has_work and abs(time.time() - self._heard_at) > _UNHEARD_S:
            # Idle for long, or asleep: the leader may have forgotten us, and another copy may have gone on.
            self.stalled(
                messages.DUPLICATE_SEQUENCE_NUMBER, "nothing was heard of the target for long"
            )
            return False
        return True

    def _take(self) -> list[Piece]:
        """The next piece; with more waiting behind it, small ones together, since a request carries one batch a partition."""
        ready = self._ready
        first = ready.popleft()
        size, held = len(first.view), first.size
        taken = [first]
        if first.is_small:
            codec = first.codec
            while ready and size < self._settings.merge_bytes:
                piece = ready[0]
                if not piece.is_small or piece.codec != codec:
                    break
                taken.append(ready.popleft())
                size += len(piece.view)
                held += piece.size
        self._count(-held)
        return taken

    # -- answers ------------------------------------------------------------------------------

    def result(self, sent: Sent, code: int, base_offset: int, text: str | None) -> None:
        """What the broker said of a batch. After a first error the rest is only waited for: it will be sent again."""
        self.outstanding -= 1
        if not self.trouble:
            self._settle(sent, code, base_offset, text)
        self._watcher.changed(self)

    def _settle(self, sent: Sent, code: int, base_offset: int, text: str | None) -> None:
        # An offset before what was acknowledged already: the target's log was cut back, and that is lost.
        is_cut = base_offset < self._target_offset
        if code != messages.NONE or is_cut or sent is not self._window[0]:
            self.trouble = code or messages.DUPLICATE_SEQUENCE_NUMBER
            self.trouble_text = text
            if is_cut and code == messages.NONE and not self._settings.exactly_once:
                # Where the log would end if nothing were lost: resuming finds it shorter, by what was.
                self._target_offset += sent.count
            return
        self._is_remembered = self._settings.exactly_once
        self._heard_at = time.time()
        self._window.popleft()
        piece = sent.pieces[-1]
        self._offset = sent.last_offset
        self._done_sequence = advance(sent.sequence, sent.count)
        self._target_offset = base_offset + sent.count
        batch = piece.batch
        if batch is not None and piece.original is None:  # the normal case, as cheap as it can be
            self._leader_epoch, self._crc = batch.leader_epoch, batch.crc
        else:
            self._leader_epoch, self._crc = piece.fingerprint
        if self._offset >= self._fed_to:
            self._pass_over()
        self.records += sent.count
        self.bytes += len(sent.buffer)
        self.last_timestamp = piece.max_timestamp
        self._watcher.acknowledged(self, sent, base_offset)
        self.attempts = 0

    def stalled(self, code: int, text: str) -> None:
        """What was to be sent could not be."""
        if not self.trouble:
            self.trouble, self.trouble_text = code, text
        self._watcher.changed(self)

    def look_at(self, topics: Mapping[str, TopicInfo]) -> None:
        """Stop if the target's metadata shows that its topic was created again: an idle partition learns it no other way."""
        info = topics.get(self.plan.remote)
        if info is not None and self.active and not self.is_target(info.topic_id):
            self.stalled(messages.UNKNOWN_TOPIC_ID, "it was created again")

    def resend(self) -> None:
        """Send the window again, the same bytes under the same numbers."""
        self._is_remembered = False
        self.trouble = messages.NONE
        self.trouble_text = None

    def split_head(self) -> None:
        """The target refused the first batch as too large: close its records as smaller batches, under the same numbers."""
        head = self._window[0]
        if head.count == 1:
            size = len(head.buffer)
            raise RecordTooLarge(
                f"{self.plan}: the record at offset {head.first_offset} makes a batch of {size:,} bytes, more than topic "
                f"{self.plan.remote} takes.",
                f"Raise max.message.bytes of {self.plan.remote} (and, for followers, replica.fetch.max.bytes) above {size:,}; "
                "the copy goes on by itself.",
            )
        self._addresser.limit = min(self._addresser.limit, len(head.buffer))
        self._reclose_head(2)

    def reclose_head(self) -> bool:
        """The target refused the first batch as invalid: write it anew through the codec. False if that was done already."""
        if isinstance(self._window[0].buffer, bytearray):
            return False
        self._reclose_head(1)
        return True

    def _reclose_head(self, parts: int) -> None:
        head = self._window.popleft()
        self._window.extendleft(reversed(self._addresser.again(head, parts)))

    # -- positions ----------------------------------------------------------------------------

    @property
    def _fingerprint(self) -> Fingerprint:
        return Fingerprint(self._leader_epoch, self._crc)

    @property
    def position(self) -> Position:
        """What the target has acknowledged, as it is to be recorded."""
        return replace(
            self._base,
            offset=self._offset,
            sequence=self._done_sequence,
            target_offset=self._target_offset,
            fingerprint=self._fingerprint,
        )

    @property
    def numbering(self) -> Numbering | None:
        return self._base.numbering

    def take_over(self, position: Position) -> None:
        """Stand at this position (another copy's, while this one only watches)."""
        self._base = position
        self._offset = position.offset
        self._fed_to = _NEVER  # what was fetched so far does not belong to this position
        self._done_sequence = position.sequence
        self._target_offset = position.target_offset
        self._leader_epoch, self._crc = position.fingerprint
        self._topic_ids = bytes.fromhex(position.source_id), bytes.fromhex(position.target_id)

    def is_source(self, topic_id: bytes) -> bool:
        """Whether this topic is the one that the position speaks of, not one created again under its name.

        A cluster that tells no ids contradicts none. One that tells some now is asked whether it is the same: see `resume`.
        """
        return topic_id in (self._topic_ids[0], NO_TOPIC_ID)

    def is_target(self, topic_id: bytes) -> bool:
        return self._topic_ids[1] in (b"", topic_id) or topic_id == NO_TOPIC_ID

    @property
    def topic_ids(self) -> TopicIds:
        """The topics that its offsets are of."""
        source, target = self._topic_ids
        return TopicIds(source or NO_ID, target or NO_ID)

    def restart(self, position: Position) -> None:
        """Forget what is under way and go on from a position."""
        assert position.numbering is not None  # noqa: S101 - resume gives only numbered ones
        self.take_over(position)
        self._addresser.begin(position.numbering, position.sequence)
        self._stream = Stream(
            position.next_offset, self._settings.fetch.isolation, position.fingerprint
        )
        self._fed_to = position.offset
        self.suspend()
        self._window.clear()
        self.outstanding = 0
        self.trouble = self.fetch_trouble = messages.NONE
        self.trouble_text = self.fetch_error = None
        self._is_remembered = False
        self._heard_at = time.time()
        self.active = True

    def suspend(self) -> None:
        """Do nothing until `restart`, and keep no room from the others meanwhile: what was fetched is fetched again then."""
        self.active = False
        self._ready.clear()
        self._count(-self.ready_bytes)
