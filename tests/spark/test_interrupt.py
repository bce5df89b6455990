"""Ctrl-C while Spark writes: the jobs are cancelled, and the session is found again."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import SparkContext

from support.spark_tables import rows, write
from zero_rename.spark import register
from zero_rename.spark.registration import cancel_on_interrupt


class Context:
    def __init__(self) -> None:
        self.cancelled_in: list[threading.Thread] = []

    def cancelAllJobs(self) -> None:
        self.cancelled_in.append(threading.current_thread())


@pytest.fixture
def sparks_own() -> Iterator[Any]:
    """The handler that a SparkContext installs, as far as one can tell."""
    before = signal.getsignal(signal.SIGINT)

    def handler(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    handler.__qualname__ = "SparkContext._do_init.<locals>.signal_handler"
    signal.signal(signal.SIGINT, handler)
    yield handler
    signal.signal(signal.SIGINT, before)


class TestCancelling:
    def test_jobs_are_cancelled_by_another_thread(self, sparks_own: Any) -> None:
        """The interrupted one's connection to the JVM is taken by the call that is to end."""
        context: Any = Context()
        cancel_on_interrupt(context)
        cancel_on_interrupt(context)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert len(context.cancelled_in) == 1
        assert context.cancelled_in[0] is not threading.main_thread()

    def test_somebody_elses_handler_stays(self) -> None:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            context: Any = Context()
            cancel_on_interrupt(context)
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        finally:
            signal.signal(signal.SIGINT, before)

    def test_other_threads_install_nothing(self, sparks_own: Any) -> None:
        context: Any = Context()
        thread = threading.Thread(target=cancel_on_interrupt, args=[context])
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGINT) is sparks_own

    def test_sparks_handler_is_known(self, sparks_own: Any) -> None:
        """By the name of its function: a Spark that calls it otherwise is noticed here."""
        own: Any = SparkContext._do_init
        names = [getattr(constant, "co_qualname", "") for constant in own.__code__.co_consts]
        assert sparks_own.__qualname__ in names


@pytest.mark.spark
def test_a_thread_of_the_users_writes_once_it_is_registered(spark, s3_bucket):
    """A new thread is a new one of the JVM too, without a session, as after Ctrl-C."""
    url = f"s3://{s3_bucket.name}/t"
    outcome: list[Any] = []

    def work() -> None:
        try:
            register(spark)
            write(spark.range(2), url)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert outcome == []
    assert rows(spark.read.format("zero_rename").load(url)) == [{"id": 0}, {"id": 1}]
