from __future__ import annotations

import threading

import pytest

from zero_rename.committer import StoreUnreachableError
from zero_rename.committer.periodic import repeating


def test_signs_go_on_after_a_failure_and_end_with_the_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    again, given = threading.Event(), []

    def give() -> None:
        given.append(threading.current_thread())
        if len(given) == 1:
            raise StoreUnreachableError("no answer")
        again.set()

    with repeating(give, 0.01):
        assert again.wait(120)
    assert not given[0].is_alive()
    assert "No heartbeat could be sent: no answer" in caplog.text


def test_a_sign_under_way_ends_before_the_block_does() -> None:
    """Its record would otherwise stand over the one that the writer puts next."""
    begun, ended = threading.Event(), threading.Event()
    go_on = threading.Timer(0.1, lambda: ended.set())

    def give() -> None:
        begun.set()
        ended.wait(120)

    with repeating(give, 0.01):
        assert begun.wait(120)
        go_on.start()
    assert ended.is_set()
