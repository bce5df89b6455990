from __future__ import annotations

from collections.abc import Generator
from typing import Any

from zero_rename.committer.store.deletion import remove
from zero_rename.committer.store.requests import Deleted, DeleteMany, Unknown

ITEMS = [(f"key{number:04}", None) for number in range(2500)]


def carried_out(*answers: Any) -> tuple[list[DeleteMany], Any]:
    """The requests sent, each answered in turn, and what came out."""
    step: Generator[Any, Any, Any] = remove(iter(ITEMS))
    sent = []
    given = iter(answers)
    answer = None
    try:
        while True:
            sent.append(step.send(answer))
            answer = next(given)
    except StopIteration as end:
        return sent, end.value


def test_a_thousand_at_once() -> None:
    sent, left = carried_out(Deleted(), Deleted(), Deleted())
    assert [len(request.items) for request in sent] == [1000, 1000, 500]
    assert [item for request in sent for item in request.items] == ITEMS
    assert left == {}


def test_what_is_gone_or_another_object_by_now_is_no_failure() -> None:
    gone = Deleted({"key0000": "NoSuchKey", "key0001": "PreconditionFailed"})
    sent, left = carried_out(gone, gone, gone)
    assert (len(sent), left) == (3, {})


def test_refusals_are_told_and_end_it() -> None:
    refused = Deleted({"key1000": "AccessDenied", "key1001": "NoSuchKey"})
    sent, left = carried_out(Deleted(), refused)
    assert (len(sent), left) == (2, {"key1000": "AccessDenied"})


def test_without_an_answer_all_may_still_be_there() -> None:
    sent, left = carried_out(Unknown("timed out"))
    assert len(sent) == 1
    assert left == {key: "timed out" for key, _ in ITEMS[:1000]}


def test_keys_that_the_store_is_too_busy_for_are_asked_for_again() -> None:
    """A store that throttles answers 200, and names the keys it left."""
    busy = Deleted({"key0007": "SlowDown", "key0008": "InternalError", "key0009": "NoSuchKey"})
    still = Deleted({"key0008": "SlowDown"})
    sent, left = carried_out(busy, None, still, None, Deleted(), Deleted(), Deleted())
    deletes = [request for request in sent if isinstance(request, DeleteMany)]
    assert [len(request.items) for request in deletes] == [1000, 2, 1, 1000, 500]
    assert (len(sent) - len(deletes), left) == (2, {})


def test_a_store_that_stays_too_busy_is_told_of() -> None:
    busy = [Deleted({"key0007": "SlowDown"}), None] * 10
    sent, left = carried_out(*busy)
    assert sum(isinstance(request, DeleteMany) for request in sent) == 10
    assert left == {"key0007": "SlowDown"}
