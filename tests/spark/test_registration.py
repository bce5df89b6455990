"""Variables of the workers while the data source is registered, by one of several threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from zero_rename.spark.registration import _environment

OWN = {"TZ": "UTC"}


@dataclass
class Context:
    """What is asked of a SparkContext."""

    environment: dict[str, str] = field(default_factory=lambda: dict(OWN))


def test_another_thread_reads_them_meanwhile() -> None:
    """Each Python function of any frame takes them with it."""
    context = Context()
    reading = iter(context.environment.items())
    with _environment(context, {"FOLDER": "/x", "HANDOFF": None}):
        assert context.environment == {**OWN, "FOLDER": "/x"}
        assert list(reading) == list(OWN.items())
        reading = iter(context.environment.items())
    assert dict(reading) == {**OWN, "FOLDER": "/x"}
    assert context.environment == OWN


def test_another_thread_registers_meanwhile() -> None:
    context, seen = Context(), []

    def register() -> None:
        with _environment(context, {"OTHER": "1"}):
            seen.append(dict(context.environment))

    thread = threading.Thread(target=register)
    with _environment(context, {"FOLDER": "/x"}):
        thread.start()
        thread.join(0.2)
    thread.join()
    assert seen == [{**OWN, "OTHER": "1"}]
    assert context.environment == OWN
