"""Fewer requests at once while a store throttles, and more again afterwards."""

from __future__ import annotations

import threading
from math import inf

from zero_rename.committer.store.retries import FEWEST, ConcurrencyLimit


def under_way(concurrency: ConcurrencyLimit, count: int) -> list[int]:
    return [concurrency.begin() for _ in range(count)]


def test_nothing_is_bounded_in_fair_weather() -> None:
    concurrency = ConcurrencyLimit(8)
    for turn in under_way(concurrency, 100):
        concurrency.end(turn, throttled=False)
    assert concurrency.limit == inf


def test_of_requests_that_were_under_way_together_one_cuts() -> None:
    concurrency = ConcurrencyLimit(32)
    for turn in under_way(concurrency, 20):
        concurrency.end(turn, throttled=True)
    assert concurrency.limit == 14.0


def test_each_later_moment_cuts_again_down_to_a_floor() -> None:
    concurrency = ConcurrencyLimit(32)
    limits = []
    for _ in range(5):
        for turn in under_way(concurrency, int(min(concurrency.limit, 20))):
            concurrency.end(turn, throttled=True)
        limits.append(concurrency.limit)
    assert limits[:3] == [14.0, 14.0 * 0.7, 9 * 0.7]
    assert limits[-1] == FEWEST


def test_answers_bring_it_back_until_nothing_is_bounded() -> None:
    concurrency = ConcurrencyLimit(8)
    for turn in under_way(concurrency, 8):
        concurrency.end(turn, throttled=True)
    answers = 0
    while concurrency.limit < inf:
        (turn,) = under_way(concurrency, 1)
        concurrency.end(turn, throttled=False)
        answers += 1
    # One more for each window full of answers: 5.6 to 8 in about 16.
    assert 12 < answers < 24


def test_whoever_comes_beyond_the_limit_waits_for_a_turn() -> None:
    concurrency = ConcurrencyLimit(32)
    (throttled,) = under_way(concurrency, 1)
    concurrency.end(throttled, throttled=True)
    turns = under_way(concurrency, FEWEST)
    got = threading.Event()

    def one_more() -> None:
        concurrency.end(concurrency.begin(), throttled=False)
        got.set()

    thread = threading.Thread(target=one_more)
    thread.start()
    assert not got.wait(0.05)
    concurrency.end(turns.pop(), throttled=False)
    assert got.wait(60)
    thread.join()
