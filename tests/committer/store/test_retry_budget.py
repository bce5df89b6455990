"""How long a request is repeated: by its own first try, and by the store's last answer."""

from __future__ import annotations

import logging

import pytest

from zero_rename.committer.store.retries import Retries, RetryBudget, Trouble

PATIENCE = RetryBudget(total=100.0, unheard=10.0, first=1.0, longest=8.0)


def heard() -> Retries:
    retries = Retries(32, chance=lambda: 1.0)
    retries.answered()
    return retries


def tried(retries: Retries, began: float, trouble: Trouble = Trouble.UNANSWERED) -> list[float]:
    """When a request that gets no answer is tried, by the clock."""
    now, times = began, []
    while True:
        times.append(now)
        retries.troubled(trouble, now)
        wait = retries.pause(PATIENCE, began, now, len(times))
        if wait is None:
            return times
        now += wait


def test_pauses_double_up_to_the_longest_and_the_last_try_is_at_the_end() -> None:
    times = tried(heard(), 0.0)
    assert times[:7] == [0, 1, 3, 7, 15, 23, 31]
    assert times[-1] == 100


@pytest.mark.parametrize(("chance", "pause"), [(0.0, 0.5), (0.5, 0.75), (1.0, 1.0)])
def test_half_of_a_pause_is_left_to_chance(chance: float, pause: float) -> None:
    assert Retries(32, chance=lambda: chance).pause(PATIENCE, 0.0, 0.0, 1) == pause


def test_a_store_that_is_away_is_waited_for_once() -> None:
    retries = heard()
    assert tried(retries, 0.0)[-1] == 100
    assert tried(retries, 130.0) == [130], "and the next request is told at once"
    retries.answered()
    assert tried(retries, 200.0)[-1] == 300


def test_a_request_that_begins_in_a_silence_waits_for_what_is_left_of_it() -> None:
    retries = heard()
    retries.troubled(Trouble.UNREACHED, 40.0)
    assert tried(retries, 90.0)[-1] == 140


def test_answers_to_others_do_not_prolong_it() -> None:
    """A key, or a kind of request, that never gets an answer."""
    retries = heard()
    now = 0.0
    for tries in range(1, 1000):
        retries.troubled(Trouble.FAILED, now)
        retries.answered()
        wait = retries.pause(PATIENCE, 0.0, now, tries)
        if wait is None:
            break
        now += wait
    assert now == 100


def test_a_store_that_was_never_heard_is_given_up_soon() -> None:
    assert tried(Retries(32, chance=lambda: 1.0), 0.0)[-1] == 10


def test_throttling_is_an_answer_of_a_store_that_is_there() -> None:
    retries = Retries(32, chance=lambda: 1.0)
    assert tried(retries, 0.0, Trouble.THROTTLED)[-1] == 100


def test_a_request_that_its_caller_asks_again_ends_by_its_tries() -> None:
    retries = heard()
    few = RetryBudget(tries=3)
    assert [retries.pause(few, 0.0, 0.0, n) is None for n in (1, 2, 3)] == [False, False, True]


def test_a_long_silence_is_told_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    retries = heard()
    with caplog.at_level(logging.WARNING, "zero_rename.committer.store"):
        tried(retries, 0.0)
        retries.answered()
        retries.answered()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "no usable answer" in told[0]
    assert "answers again" in told[1]


def test_troubles_are_counted_by_kind() -> None:
    retries = heard()
    for trouble in (Trouble.THROTTLED, Trouble.UNREACHED, Trouble.THROTTLED):
        retries.troubled(trouble, 0.0)
    assert retries.troubles == {Trouble.THROTTLED: 2, Trouble.UNREACHED: 1}
