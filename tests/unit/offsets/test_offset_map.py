"""Translation by the offset map: exact where it is known what stands there, and never past a record that was not read."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkmirror.formats.offset_map import Run, Segment, TopicIds
from sparkmirror.offsets.map_writer import MapWriter
from sparkmirror.offsets.offset_map import PartitionMap, Translation
from sparkmirror.offsets.segments import MOST_NUMBERS, merged
from tests.unit.offsets.segments import IDS, OTHER, PLACE, known, segment


def offsets(found: PartitionMap, *wanted: int, log_start: int | None = 0) -> list[int | None]:
    answers = [found.translate(offset, log_start) for offset in wanted]
    return [None if answer is None else answer.offset for answer in answers]


def test_one_run() -> None:
    one = known(segment((100, 0, 50)))
    assert offsets(one, 100, 101, 149, 150) == [0, 1, 49, 50]
    assert one.translate(150, 0) == Translation(50, True)


def test_ahead_of_what_is_copied() -> None:
    assert known(segment((100, 0, 50))).translate(500, 0) == Translation(50, False)


def test_before_the_first_record() -> None:
    one = known(segment((100, 20, 50)))
    assert offsets(one, 5, log_start=20) == [20]
    assert offsets(one, 5, log_start=25) == [20], "the log has lost its beginning since"
    assert offsets(one, 5, log_start=19) == [None], (
        "something stands before of which nothing is known"
    )
    assert offsets(one, 5, log_start=None) == [None]


def test_gaps_lead_to_the_next_record() -> None:
    one = known(segment((0, 0, 10), (12, 10, 3), (20, 15, 5)))
    assert offsets(one, 9, 10, 11, 12, 14, 15, 19, 20) == [9, 10, 10, 10, 12, 15, 15, 15]


def test_a_gap_between_segments() -> None:
    one = known(segment((0, 0, 10)), segment((15, 10, 10)))
    assert one.translate(12, 0) == Translation(10, True)


def test_a_hole_is_never_passed_over() -> None:
    one = known(segment((0, 0, 10)), segment((20, 18, 10)))
    assert one.translate(9, 0) == Translation(9, True)
    assert one.translate(15, 0) == Translation(10, False)
    assert one.translate(20, 0) == Translation(18, True)
    assert [(a.target_end, b.target_start) for a, b in one.holes()] == [(10, 18)]


def test_a_rewind_leads_to_the_later_copy_of_what_was_copied_again() -> None:
    one = known(segment((0, 0, 100)), segment((40, 100, 30)))
    assert offsets(one, 30, 39, 40, 60, 69) == [30, 39, 70, 70, 70]
    assert one.translate(90, 0) == Translation(90, True), "copied once so far"
    assert one.translate(100, 0) == Translation(130, False)
    one.put(segment((40, 100, 60)), 9)
    assert offsets(one, 39, 40, 60, 99, 100) == [39, 100, 120, 159, 160]


def test_copied_again_from_the_beginning() -> None:
    one = known(segment((10, 0, 100)), segment((10, 100, 100)))
    assert offsets(one, 5, 10, 109, 110) == [100, 100, 199, 200]


def test_a_topic_made_anew_makes_the_old_void() -> None:
    one = known(segment((0, 0, 100)), segment((0, 100, 10), ids=OTHER))
    assert offsets(one, 0, 5, 10, log_start=100) == [100, 105, 110]
    assert [old.target_start for old in one.void] == [0]


def test_an_upgrade_that_brings_topic_ids_keeps_what_was_known() -> None:
    """Brokers before 2.8 tell none, of the source, the target or both."""
    for before in (TopicIds(), TopicIds(source=IDS.source), TopicIds(target=IDS.target)):
        found = known(segment((0, 0, 600), ids=before), segment((600, 600, 10)))
        assert found.ids == IDS
        assert found.translate(100, None) == Translation(100, True)
        assert found.void == []
        assert known(segment((0, 0, 600)), segment((600, 600, 10), ids=before)).ids == IDS


def test_a_topic_made_anew_after_the_upgrade_makes_the_old_void() -> None:
    found = known(
        segment((0, 0, 600), ids=TopicIds()),
        segment((600, 600, 10)),
        segment((0, 5, 5), ids=OTHER),
    )
    assert found.ids == OTHER
    assert {one.source_start for one in found.void} == {0, 600}
    assert found.line == [segment((0, 5, 5), ids=OTHER)]


def test_a_remote_topic_made_anew_long_after_the_upgrade_is_not_mixed_with_the_first_one() -> None:
    """What was written without ids is of the topic that the upgrade gave an id to, and not of the next."""
    anew = TopicIds(IDS.source, OTHER.target)
    found = known(
        segment((400, 400, 400), ids=TopicIds(IDS.source)),
        segment((800, 800, 200)),
        segment((500, 0, 350), ids=anew),
    )
    assert found.translate(600, None) == Translation(100, True)
    assert len(found.void) == 2


def test_what_was_acknowledged_before_ids_came_is_written() -> None:
    writer = MapWriter()
    writer.acknowledged(PLACE, TopicIds(), Run(0, 0, 10))
    writer.acknowledged(PLACE, IDS, Run(10, 10, 10))
    assert sorted(one.target_start for one in writer.take()) == [0, 10]


def test_a_target_that_was_cut_back() -> None:
    """Records 250 to 299 were lost there, and something else came to stand in their place."""
    one = known(segment((200, 200, 100)), segment((260, 250, 40)))
    assert offsets(one, 240, 255, 260, 299) == [240, 250, 250, 289]


def test_what_was_written_later_counts() -> None:
    one = PartitionMap(PLACE)
    one.put(segment((260, 250, 40)), 2)
    one.put(segment((200, 200, 100)), 5)
    assert offsets(one, 260) == [260]


def test_twins_agree() -> None:
    one = known(segment((0, 0, 100)), segment((50, 50, 100)), segment((60, 60, 20)))
    assert offsets(one, 70, 120, 150) == [70, 120, 150]
    assert [s.target_start for s in one.void] == [60]


def test_a_removed_segment_leaves_a_hole() -> None:
    one = known(segment((0, 0, 10)), segment((10, 10, 10)), segment((20, 20, 10)))
    one.remove(10)
    assert one.translate(15, 0) == Translation(10, False)


def test_neighbours_are_merged() -> None:
    one = merged(segment((0, 0, 10), (12, 10, 5)), segment((17, 15, 5), (30, 20, 1)))
    assert one == segment((0, 0, 10), (12, 10, 10), (30, 20, 1))
    assert merged(segment((0, 0, 10)), segment((10, 11, 5))) is None
    assert merged(segment((0, 0, 10)), segment((9, 10, 5))) is None
    assert merged(segment((0, 0, 10)), segment((10, 10, 5), ids=OTHER)) is None


def test_long_ones_are_not_merged() -> None:
    half = [(n * 3, n, 1) for n in range(MOST_NUMBERS // 3)]
    after = [(10_000 + n * 3, len(half) + n, 1) for n in range(MOST_NUMBERS // 3)]
    assert merged(segment(*half), segment(*after)) is None


# -- written and read -------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["copy", "skip", "jump", "rewind", "write", "lose", "again"]),
        st.integers(1, 40),
    ),
    max_size=60,
)


class World:
    """A partition that is copied, with everything that may come in between, and what the map says of it."""

    def __init__(self) -> None:
        self.writer = MapWriter()
        self.map = PartitionMap(PLACE)
        self.source = self.target = 0
        self.records: list[tuple[int, int]] = []
        self.has_rewound = False
        self.order = 0

    def step(self, kind: str, size: int) -> None:
        match kind:
            case "copy":
                run = Run(self.source, self.target, size)
                self.writer.acknowledged(PLACE, IDS, run)
                self.records += [(run.source + n, run.target + n) for n in range(size)]
                self.source, self.target = run.source_end, run.target_end
            case "skip":
                self.source += size
            case "jump":
                self.target += size
            case "rewind":
                self.source = max(0, self.source - size)
                self.has_rewound = True
            case "write":
                self.put(self.writer.take())
            case "again":
                self.writer.give_back(self.writer.take())
            case "lose":  # a task that was killed
                self.writer = MapWriter()

    def put(self, segments: list[Segment]) -> None:
        for one in segments:
            self.map.put(one, self.order)
            self.order += 1

    def nearest(self, offset: int) -> int | None:
        """The last record, in the target's order, up to this offset."""
        found = [number for number, (source, _) in enumerate(self.records) if source <= offset]
        return found[-1] if found else None


@given(STEPS)
@settings(max_examples=400)
def test_everything_that_was_written_is_translated_exactly(steps: list[tuple[str, int]]) -> None:
    world = World()
    for kind, size in steps:
        world.step({"rewind": "skip", "lose": "write"}.get(kind, kind), size)
    world.put(world.writer.take())
    for offset in range(0, world.source + 2):
        number = world.nearest(offset)
        answer = world.map.translate(offset, 0)
        if number is None:
            continue
        source, target = world.records[number]
        assert answer is not None
        if source == offset:
            assert answer == Translation(target, True)
        elif number + 1 < len(world.records):
            assert target < answer.offset <= world.records[number + 1][1]
        else:
            assert answer.offset == target + 1


@given(STEPS)
@settings(max_examples=400)
def test_nothing_is_ever_passed_over(steps: list[tuple[str, int]]) -> None:
    """Whatever was lost of the map: records from the offset on never lie before its translation."""
    world = World()
    for kind, size in steps:
        world.step("skip" if kind == "rewind" else kind, size)
    for offset in range(0, world.source + 2):
        answer = world.map.translate(offset, 0)
        if answer is None:
            continue
        unread = [target for source, target in world.records if source >= offset]
        assert not unread or answer.offset <= unread[0]


def test_what_another_task_wrote_between_is_a_hole() -> None:
    writer, one = MapWriter(), PartitionMap(PLACE)
    writer.acknowledged(PLACE, IDS, Run(0, 0, 10))
    writer.interrupt({(PLACE.topic, PLACE.partition)})
    assert not writer.is_idle
    writer.acknowledged(PLACE, IDS, Run(70, 70, 5))
    for order, found in enumerate(writer.take()):
        one.put(found, order)
    assert one.translate(15, 0) == Translation(10, False)
    writer.interrupt({(PLACE.topic, PLACE.partition)})
    assert writer.is_idle, "all of it is written"


@given(STEPS)
@settings(max_examples=200)
def test_joining_is_the_same_as_lining_up(steps: list[tuple[str, int]]) -> None:
    world = World()
    for kind, size in steps:
        world.step(kind, size)
        world.map.translate(0, 0)  # lines up, so that what comes is joined
    anew = PartitionMap(PLACE)
    for _, one in sorted(world.map._segments.values(), key=lambda row: row[0]):
        anew.put(one, world.order)
        world.order += 1
    for offset in range(0, world.source + 2):
        assert world.map.translate(offset, 0) == anew.translate(offset, 0)


# -- and back ---------------------------------------------------------------------------------------


def test_the_way_back() -> None:
    one = known(segment((100, 0, 10), (115, 10, 5)), segment((130, 20, 5)))
    wanted = [(0, 100), (9, 109), (10, 115), (14, 119), (15, 120), (18, 120), (20, 130), (25, 135)]
    assert [one.translate_back(offset) for offset, _ in wanted] == [source for _, source in wanted]
    assert known(segment((5, 10, 5))).translate_back(3) is None


@given(STEPS)
@settings(max_examples=200)
def test_back_to_the_next_record_that_was_not_read(steps: list[tuple[str, int]]) -> None:
    world = World()
    for kind, size in steps:
        world.step({"rewind": "skip", "lose": "write"}.get(kind, kind), size)
    world.put(world.writer.take())
    for offset in range(world.target + 1):
        answer = world.map.translate_back(offset)
        if answer is None:
            continue
        unread = [source for source, target in world.records if target >= offset]
        read = [source for source, target in world.records if target < offset]
        assert not unread or answer <= unread[0]
        assert not read or answer > read[-1]
