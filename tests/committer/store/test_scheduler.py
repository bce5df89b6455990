"""The scheduler: steps, members of All, their errors, and interrupts. No input or output."""

from __future__ import annotations

from typing import Any

import pytest

from support.memory_store import MemoryDriver
from zero_rename.committer.errors import StoreRefusedError, StoreUnreachableError
from zero_rename.committer.store.requests import Absent, All, Clock, Get, Head, Put, Step, Work
from zero_rename.committer.store.scheduler import Scheduler


def ask(key: str) -> Step[str]:
    yield from Get(key)
    return key


def fail(error: Exception) -> Step[None]:
    yield from Get("before")
    raise error


def run(work: Work[Any]) -> Any:
    return MemoryDriver().run(work)


def test_results_of_all_come_in_order_of_its_steps() -> None:
    def slow() -> Step[str]:
        yield from ask("a")
        yield from ask("b")
        return "slow"

    assert run(All((slow(), ask("fast")))) == ("slow", "fast")


def test_all_takes_requests_as_well_as_steps() -> None:
    driver = MemoryDriver()
    driver.run(Put("a", b"1"))

    def step() -> Step[tuple[Any, ...]]:
        return (yield from All((Get("a"), ask("b"), All((Head("a"), Get("none"))), Clock())))

    found, name, (head, none), now = driver.run(step())
    assert (found.body, name, head.size, now) == (b"1", "b", 1, driver.clock())
    assert isinstance(none, Absent)


def test_a_request_that_fails_in_all_is_raised_when_the_others_are_done() -> None:
    def broken(request: Any, apply: Any) -> Any:
        if request.key == "bad":
            raise ConnectionError("no store")
        return apply(request)

    driver = MemoryDriver(fault=broken)
    with pytest.raises(ConnectionError):
        driver.run(All((Get("bad"), Get("good"))))
    assert [request.key for request in driver.requests] == ["bad", "good"]


def test_members_of_all_take_turns() -> None:
    def two(name: str) -> Step[None]:
        yield from Get(f"{name}1")
        yield from Get(f"{name}2")

    driver = MemoryDriver()
    driver.run(All((two("a"), two("b"))))
    assert [request.key for request in driver.requests] == ["a1", "b1", "a2", "b2"]


def test_all_of_nothing_is_an_empty_tuple_without_a_request() -> None:
    driver = MemoryDriver()
    assert driver.run(All(())) == ()
    assert driver.requests == []


def test_members_that_make_no_request_wake_their_parent() -> None:
    def nothing(value: int) -> Step[int]:
        yield from ()
        return value

    def step() -> Step[Any]:
        inner = yield from All((nothing(1), nothing(2)))
        return (yield from All(tuple(nothing(value + 1) for value in inner)))

    assert run(step()) == (2, 3)


def test_ten_thousand_members_that_make_no_request_do_not_recurse() -> None:
    def nothing() -> Step[int]:
        yield from ()
        return 1

    def step() -> Step[Any]:
        total = 0
        for _ in range(10_000):
            total += sum((yield from All((nothing(),))))
        return total

    assert run(step()) == 10_000


def test_others_run_to_their_end_when_one_fails_and_the_first_in_order_is_raised() -> None:
    ended = []

    def long() -> Step[None]:
        for number in range(5):
            yield from Get(str(number))
        ended.append("long")

    late, early = KeyError("late"), ValueError("early")

    def late_failure() -> Step[None]:
        yield from ask("x")
        yield from ask("y")
        raise late

    with pytest.raises(KeyError) as raised:
        run(All((late_failure(), long(), fail(early))))
    assert ended == ["long"]
    assert raised.value is late
    assert raised.value.__notes__ == ["At the same time: ValueError: early"]


@pytest.mark.parametrize(
    ("kind", "what", "notes"),
    [
        (StoreUnreachableError, {}, 0),
        (StoreRefusedError, {"no_keys": True}, 0),
        (StoreRefusedError, {"no_bucket": True}, 0),
        (StoreRefusedError, {"lacks_right": True}, 1),
    ],
)
def test_what_is_wrong_with_the_whole_store_is_told_once(
    kind: Any, what: dict[str, bool], notes: int
) -> None:
    first = kind("Get", remedy="See the endpoint.", **what)
    other = kind("Put", remedy="See the endpoint.", **what)
    with pytest.raises(kind) as raised:
        run(All((fail(first), fail(other))))
    assert raised.value is first
    assert len(getattr(first, "__notes__", ())) == notes


def test_an_error_can_be_caught_where_the_step_waits() -> None:
    def step() -> Step[str]:
        try:
            yield from All((fail(ValueError("x")),))
        except ValueError:
            return (yield from ask("after"))
        return "not raised"

    assert run(step()) == "after"


def test_close_ends_children_before_their_parents() -> None:
    ended = []

    def member(name: str) -> Step[None]:
        try:
            yield from Get(name)
        finally:
            ended.append(name)

    def step() -> Step[None]:
        try:
            yield from All((member("a"),))
        finally:
            ended.append("parent")

    scheduler = Scheduler(step())
    scheduler.take()
    scheduler.close()
    assert ended == ["a", "parent"]
