"""Bringing back what partitions held before: an ordinary job that writes no byte, in a table that
is read by heads, as long as their heads keep it.

What is brought back is what a head keeps when the job decides, with its claims held; the versions
that were looked at are the job's read base, so a job that came in between refuses it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from ..commit.apply import finish
from ..commit.brought_back import refuse_elsewhere
from ..commit.past import check_past, states_as_of
from ..commit.snapshot import take_snapshot
from ..commit.state.context import Context
from ..commit.state.decide import Decided, read_decision
from ..commit.state.found_table import read_table
from ..commit.state.heads import read_head
from ..commit.state.open_jobs import read_open
from ..commit.state.partition_files import files_of_heads
from ..commit.state.tolerance import undamaged
from ..errors import InvalidInputError
from ..format.as_of import AsOf
from ..format.job_spec import JobSpec, Mode, Owner
from ..format.layout import UNPARTITIONED, require_job_id
from ..format.read_base import ReadBase
from ..format.records.head import HeadState, Slot
from ..format.schema.lost_records import head_lost, named_by
from ..store.requests import All, Step


@dataclass(frozen=True)
class Restored:
    """What partitions are to hold again, or hold since ``job`` committed.

    :param versions: by partition, the version whose content it is; 0: it was not there.
    :param found: by partition, the version that it was at.
    :param job: ``None`` where nothing was done, or is to be done.
    """

    versions: Mapping[str, int]
    found: Mapping[str, int]
    job: str | None = None


@dataclass(frozen=True)
class RestorePlan:
    """A restoration, and the table that it is of."""

    url: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    restored: Restored

    def spec(self, owner: Owner) -> JobSpec:
        """The job that carries it out."""
        named = tuple(sorted(self.restored.versions)) if self.partition_by else None
        return JobSpec(
            self.schema,
            Mode.REPLACE,
            replace_partitions=named,
            replace_table=named is None,
            base=ReadBase(self.url, dict(self.restored.found), whole=False),
            restores=self.restored.versions,
            owner=owner,
        )


def plan_undo(context: Context, job: str) -> Step[RestorePlan]:
    """Work out what :meth:`.table.Table.undo` brings back. Changes nothing, but that a commit which
    is not applied yet is."""
    require_job_id(job)
    table = yield from read_table(context)
    check_past(table, AsOf(time=0.0), None)
    decided = yield from read_decision(context, job)
    if decided is None or not decided.decision.is_commit:
        raise InvalidInputError(
            f"{job} has committed nothing here, so there is nothing to undo.",
            job=job,
            remedy=f"zero-rename history {context.root.url} lists the jobs that did.",
        )
    if (yield from read_open(context, job)) is not None:
        yield from finish(context, decided)
    versions = {change.partition: change.base_version for change in decided.decision.partitions}
    states = yield from All(
        tuple(read_head(context, Slot.partition(context.root, name)) for name in sorted(versions))
    )
    former: list[HeadState] = []
    for state in states:
        if state.etag is None:
            raise head_lost(context.root, state.slot.name, named_by(context.root, job))
        before = versions[state.slot.name]
        _refuse_built_on(context, decided, state, before)
        former += states_as_of(context.root, table, [state], AsOf(version=before))
    if table.symlinks:
        named = yield from files_of_heads(context, former)
        refuse_elsewhere(context.root, table, chain.from_iterable(map(undamaged, named.files)))
    found = {name: version + 1 for name, version in versions.items()}
    restored = Restored(versions, found)
    return RestorePlan(context.root.url, table.schema, table.partition_by, restored)


def _refuse_built_on(context: Context, decided: Decided, state: HeadState, before: int) -> None:
    head, job = state.head, decided.decision.job
    if head.last_job == job and head.version == before + 1:
        return
    name = "the table" if head.name == UNPARTITIONED else head.name
    raise InvalidInputError(
        f"{job} is not the last job that changed {name}: {head.last_job} has built on it. Nothing "
        "was done, in none of its partitions.",
        job=job,
        key=state.slot.key,
        remedy=f"Undo that one first; or bring back what all of the table held at a time: "
        f"zero-rename restore {context.root.url} --as-of TIME.",
    )


def plan_restore(
    context: Context, past: AsOf, partitions: Collection[str] | None = None
) -> Step[RestorePlan]:
    """Work out what :meth:`.table.Table.restore` brings back: of partitions that held something
    else since. ``partitions`` are as they are stored."""
    # The past first: it does not change, and what comes after the second look refuses the job.
    then = yield from take_snapshot(context, partitions, past)
    now = yield from take_snapshot(context, partitions)
    held, holds = then.by_partition(), now.by_partition()
    found = {n: at for n, at in now.versions.items() if held.get(n) != holds.get(n)}
    table = yield from read_table(context)
    refuse_elsewhere(context.root, table, (file for n in found for file in held.get(n, ())))
    restored = Restored({name: then.versions.get(name, 0) for name in found}, found)
    return RestorePlan(context.root.url, now.schema, now.partition_by, restored)
