"""Progress of a recompute: the jobs that were run again so far; a task keeps it over a wait."""

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

    :param cleared: this task cleared its instance; else the instance was at work already, and is
        waited for.
    :param events: number of the last asset event that its instance had made before.
    :param told: the key of its run, if a record of this task may say what the run may make.
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
        fields: dict[str, Any] = {**said, "partitions": partitions, "instance": instance}
        return cls(**fields)

    def made_any_of(self, step: Step) -> bool:
        """Return whether it was cleared to make a partition that a step must make."""
        same = self.table == step.table and not set(self.partitions).isdisjoint(step.partitions)
        return self.cleared and same

    @property
    def places(self) -> str:
        return f"{', '.join(self.partitions)} of {self.table}"


@dataclass(frozen=True)
class Recomputed:
    """The jobs of a recompute that were run again so far.

    :param targets: URLs of tables or of partitions.
    :param until: Unix time at which the task gives up.
    :param running: jobs that have not ended yet.
    :param layers: jobs that were run together, in order.
    :param troubles: the number of consecutive polls in which Airflow's API has failed.
    :param refused: why the API refused to clear a task, while others of its layer are at work.
    """

    targets: tuple[str, ...]
    until: float
    running: tuple[Again, ...] = ()
    layers: tuple[tuple[Again, ...], ...] = ()
    troubles: int = 0
    refused: str = ""

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Recomputed:
        layers = tuple(tuple(map(Again.of, layer)) for layer in said["layers"])
        running = tuple(map(Again.of, said["running"]))
        # A task that an earlier version of this package has deferred does not say it.
        refused = said.get("refused", "")
        targets, until, troubles = tuple(said["targets"]), said["until"], said["troubles"]
        return cls(targets, until, running, layers, troubles, refused)

    def said(self) -> dict[str, Any]:
        """Return the progress as values that JSON can represent."""
        return json.loads(json.dumps(asdict(self)))

    @property
    def all(self) -> list[Again]:
        return [it for layer in self.layers for it in layer]


class Kept(Protocol):
    """Progress that a task can keep over a wait."""

    def said(self) -> dict[str, Any]: ...


def wait(task: BaseOperator, seconds: float, deferrable: bool, progress: Kept) -> None:
    """Wait before the next poll, here or in the triggerer.

    After a wait in the triggerer, the task goes on with its method ``proceed`` and the progress.
    """
    if not deferrable:
        time.sleep(seconds)
        return
    pause_deferred(task, seconds, "proceed", {"progress": progress.said()})
