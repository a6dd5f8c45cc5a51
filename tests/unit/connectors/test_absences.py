"""How long something has been missing, at every look."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.connectors.absences import Absences, Look
from sparkmirror.connectors.news import News


def test_it_is_due_when_it_was_missing_for_the_whole_time() -> None:
    absences = Absences(10.0)
    assert absences.look(["a"], 0.0) == Look(["a"], [], [])
    assert absences.look(["a", "b"], 9.5) == Look(["b"], [], [])
    assert absences.look(["a", "b"], 10.0) == Look([], [], ["a"])
    assert absences.look(["b"], 19.25) == Look([], ["a"], [])
    assert absences.look(["b"], 19.5) == Look([], [], ["b"])


def test_one_look_at_which_it_was_there_begins_the_count_anew() -> None:
    absences = Absences(10.0)
    absences.look(["a"], 0.0)
    assert absences.look([], 9.0) == Look([], ["a"], [])
    assert absences.look(["a"], 11.0) == Look(["a"], [], [])
    assert absences.look(["a"], 20.5).due == []
    assert absences.look(["a"], 21.0).due == ["a"]


def test_without_grace_it_is_due_at_once() -> None:
    assert Absences(0.0).look(["a"], 5.0) == Look(["a"], [], ["a"])


@given(st.lists(st.sets(st.sampled_from("abc")), max_size=12), st.integers(0, 4))
def test_due_is_what_every_look_of_the_time_missed(looks: list[set[str]], grace: int) -> None:
    absences = Absences(float(grace))
    for now, missing in enumerate(looks):
        found = absences.look(missing, float(now))
        first = max(0, now - grace)
        long_enough = now >= grace and set.intersection(*looks[first : now + 1])
        assert found.due == sorted(long_enough or ())
        before = looks[now - 1] if now else set()
        assert (found.gone, found.back) == (sorted(missing - before), sorted(before - missing))


def test_only_what_changed_is_news() -> None:
    news = News()
    assert news.is_new("a", "broken")
    assert not news.is_new("a", "broken")
    assert news.is_new("a", "mended")
    assert news.is_new("b", "broken")
    news.keep({"b"})
    assert news.is_new("a", "mended")
    assert not news.is_new("b", "broken")
    news.over("b")
    assert news.is_new("b", "broken")
