"""The world of a walk through a Delta table: its oracle hears each entry of the log."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from unittest import mock

from walk.delta_oracle import LogOracle
from walk.oracle import Effect, Violation
from walk.plan import Operation
from walk.world import ROOT, URL, Process, World

from zero_rename.committer.errors import OutcomeUnknownError, SnapshotGoneError
from zero_rename.committer.format import layout
from zero_rename.committer.store import requests as s
from zero_rename.log import opening
from zero_rename.tables import DeltaTable, after_commit

LOG = f"{ROOT.prefix}/_delta_log/"
#: Where files of some tables lie first.
FAST = "s3://cache/fast"
#: Of small tables: commits from one checkpoint to the next.
_OFTEN = 3
_A_WEEK = 7 * 24 * 3600.0
#: Functions that take an id for a fence.
_FENCERS = ("withdraw_delta_job", "abort_waiting", "repair", "close_former_attempts")


class DeltaProcess(Process):
    """A process that works on a Delta table, until it dies."""

    world: DeltaWorld

    def fresh(self) -> Any:
        """A table of which this process knows what it has opened before."""
        table = DeltaTable(URL)
        table.driver = self.driver  # type: ignore[assignment]
        return table

    def new_job(self, caller: str) -> str:
        """The id of a job, or of a fence."""
        if self.during is None or caller in _FENCERS:
            return self.world.new_id()
        return self._job_id()

    @contextmanager
    def carrying_out(self, operation: Operation) -> Iterator[None]:
        with super().carrying_out(operation):
            self.world.at_work.append(self)
            try:
                yield
            finally:
                self.world.at_work.pop()


@dataclass
class DeltaWorld(World):
    """Everything that a walk through a Delta table has.

    :param at_work: the processes that carry out something, each beside the one before it.
    :param waiting: jobs that wait to be published.
    :param moved: somebody has changed where files lie first.
    :param cleaned: another engine has cleaned the log.
    :param careless: another engine writes an entry without a condition, now.
    """

    oracle: LogOracle = field(default_factory=LogOracle)
    at_work: list[DeltaProcess] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    moved: bool = False
    cleaned: bool = False
    careless: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._ids = count(1)

    def new_id(self) -> str:
        """An id that no operation has asked for."""
        job = f"{layout.job_ids_begin(self.clock.now, 10)}{next(self._ids):016d}"
        self.oracle.effects[job] = Effect(job)
        return job

    @property
    def of_new_tables(self) -> Mapping[str, Any]:
        return {"data_root": FAST} if self.plan.fast and not self.moved else {}

    def has_forgotten(self, job: str) -> bool:
        return self.cleaned and not job

    def begin_process(self, name: str) -> Process:
        return DeltaProcess(self, name)

    @contextmanager
    def in_order(self) -> Iterator[None]:
        with ExitStack() as patches:
            for patch in self._patches():
                patches.enter_context(patch)
            yield

    def _patches(self) -> Iterator[AbstractContextManager[Any]]:
        yield mock.patch("time.time", self.clock)
        uuids = count(1)
        for made, instead in (
            (layout.new_job_id, self._new_job_id),
            (layout.new_write_id, self.write_id),
            (uuid.uuid4, lambda: uuid.UUID(int=next(uuids))),
        ):
            yield from _everywhere(made, instead)
        if self.plan.small:
            yield mock.patch.object(opening, "MANY", 0)
            yield mock.patch.object(after_commit, "CHECKPOINT_INTERVAL", _OFTEN)

    def _new_job_id(self) -> str:
        if not self.at_work:
            return self.new_id()
        return self.at_work[-1].new_job(sys._getframe(1).f_code.co_name)

    def may_be_gone(self, error: SnapshotGoneError) -> bool:
        """Whether another engine has cleaned the entries, or purge may have deleted the file."""
        if not error.key:
            return self.cleaned
        path = error.key.removeprefix(f"{ROOT.prefix}/")
        at = self.oracle.gone.get(path)
        return path not in self.oracle.live and at is not None and self.clock.now - at >= _A_WEEK

    def may_be_unknown(self, error: BaseException) -> bool:
        """Whether another engine may have cleaned the entry of a job that waited."""
        return self.cleaned and isinstance(error, OutcomeUnknownError)

    def hear(self, request: s.Request[Any], answer: object) -> None:
        if isinstance(request, s.Delete | s.DeleteMany):
            self._require_live_files(f"{request}")
        if not isinstance(request, s.Put) or not isinstance(answer, s.Done):
            return
        name = request.key.removeprefix(LOG)
        if name == request.key or not name.endswith(".json"):
            return
        if not request.if_none_match and not self.careless:
            raise Violation(f"{request.key} is written without a condition")
        come = self.oracle.written_over if self.careless else self.oracle.entered
        version = int(name.removesuffix(".json"))
        come(version, bytes(request.body), Bodies(self), self.clock.now)

    def _require_live_files(self, who: str) -> None:
        bodies = Bodies(self)
        for path in self.oracle.live:
            if path not in bodies:
                raise Violation(f"{path} is a live file, and is deleted by {who}")
        for job, it in self.oracle.lost.items():
            if not it.files <= bodies.keys():
                raise Violation(f"files of {job}, which can be repaired, are deleted by {who}")


class Bodies(dict[str, bytes]):
    """The objects below the table, by path."""

    def __init__(self, world: World) -> None:
        prefix, objects = f"{ROOT.prefix}/", world.store.objects
        super().__init__(
            (key.removeprefix(prefix), it.body)
            for key, it in objects.items()
            if key.startswith(prefix)
        )


def _everywhere(
    made: Callable[..., Any], instead: Callable[..., Any]
) -> Iterator[AbstractContextManager[Any]]:
    """Put a function in the place of another one, in each module of the package that has it."""
    for module in [it for name, it in sys.modules.items() if name.startswith("zero_rename.")]:
        for name, value in list(vars(module).items()):
            if value is made:
                yield mock.patch.object(module, name, instead)
