"""Progress of a recompute: the jobs that were run again so far, as a task keeps them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from airflow.providers.common.compat.sdk import BaseOperator

from ..orchestration.runs.task_run import NamedTask
from .pauses import pause_deferred

if TYPE_CHECKING:
    from ..lineage.plan import Step


@dataclass(frozen=True)
class Again:
    """A job that is run again.

    :param cleared: by this task; else it was at work already, and is waited for.
    :param events: number of the last event that its instance had told of an asset before.
    :param told: the key of its run, where that was told what it is to make.
    """

    table: str
    job: str
    partitions: tuple[str, ...]
    instance: NamedTask
    cleared: bool
    events: int
    told: str | None = None

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Again:
        partitions, instance = tuple(said["partitions"]), NamedTask(**said["instance"])
        return cls(**{**said, "partitions": partitions, "instance": instance})

    def made_any_of(self, step: Step) -> bool:
        """Whether it was cleared to make partitions that a step is to make."""
        same = self.table == step.table and not set(self.partitions).isdisjoint(step.partitions)
        return self.cleared and same

    @property
    def places(self) -> str:
        return f"{', '.join(self.partitions)} of {self.table}"


@dataclass(frozen=True)
class Recomputed:
    """What was run again so far.

    :param targets: tables, or partitions of them, by their whole roots.
    :param until: Unix time at which it is given up.
    :param running: what has not ended yet.
    :param layers: what was run together, in order.
    :param troubles: looks at which Airflow's API has failed, since one at which it did not.
    """

    targets: tuple[str, ...]
    until: float
    running: tuple[Again, ...] = ()
    layers: tuple[tuple[Again, ...], ...] = ()
    troubles: int = 0

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Recomputed:
        layers = tuple(tuple(map(Again.of, layer)) for layer in said["layers"])
        running = tuple(map(Again.of, said["running"]))
        return cls(tuple(said["targets"]), said["until"], running, layers, said["troubles"])

    def said(self) -> dict[str, Any]:
        """As JSON takes it."""
        return json.loads(json.dumps(asdict(self)))

    @property
    def all(self) -> list[Again]:
        return [it for layer in self.layers for it in layer]


class Kept(Protocol):
    """Progress that a task keeps over a wait."""

    def said(self) -> dict[str, Any]: ...


def wait(task: BaseOperator, seconds: float, deferrable: bool, progress: Kept) -> None:
    """Wait before the next look: in the triggerer, from where the task's method ``proceed`` goes
    on with the progress, or here."""
    if not deferrable:
        time.sleep(seconds)
        return
    pause_deferred(task, seconds, "proceed", {"progress": progress.said()})
