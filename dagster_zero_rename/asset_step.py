"""Step that writes one asset: its run, partition keys and place for events."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

import dagster as dg
from dagster._core.execution.plan.state import KnownExecutionState
from dagster._core.storage.tags import (
    ASSET_RESUME_RETRY_TAG,
    BACKFILL_ID_TAG,
    RESUME_RETRY_TAG,
    RETRY_NUMBER_TAG,
    STEP_SELECTION_TAG,
)

from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.format.layout import UNPARTITIONED, TableRoot
from zero_rename.committer.format.run_rank import RunRank, RunRanks
from zero_rename.committer.scan.reads import forget_reads
from zero_rename.committer.table import Table
from zero_rename.tables import DeltaTable

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun
    from dagster._core.execution.context.system import StepExecutionContext

#: Tag of a run that settles a conflict: the first run of those whose work it does again.
DOES_AGAIN = "zero_rename/does_again"
#: Names of a job's idempotency key and owner that say that Dagster ran it.
APPLICATION = "dagster"
#: Stands for the op where an asset is no graph.
_WHOLE = "-"
#: An asset's table, of either layout.
AssetTable = Table | DeltaTable


@dataclass(frozen=True)
class AssetStep:
    """One try at one asset, as far as the commit protocol cares.

    :param asset: its key.
    :param keys: the partition keys that the run asks for, in order; ``None``: it has no partitions.
    :param metadata: of the asset's definition, and its ``code_version``.
    :param chain: the first run of a chain of retries, by its id: a run that was re-executed from
        its failure, or retried by Dagster itself, goes on with the chain of the run before.
    :param try_number: of the step within its run, from 1; of a run that does an older one's work
        again, or was re-executed from one, from 2.
    :param is_one_of_many: a backfill makes a run of each partition, since the asset says nothing
        else.
    """

    asset: dg.AssetKey
    keys: tuple[str, ...] | None
    partitions_def: dg.PartitionsDefinition | None
    metadata: Mapping[str, Any]
    code_version: str | None
    job: str
    run: str
    root_run: str
    chain: str
    try_number: int
    is_one_of_many: bool
    step: StepExecutionContext

    @staticmethod
    def of(
        context: dg.AssetExecutionContext | dg.OutputContext, asset_key: dg.AssetKey | None = None
    ) -> AssetStep:
        """Read the context of an asset's function, or of an I/O manager's output.

        :param asset_key: which asset, where the function makes several.
        :raises InvalidInputError: the run's range of partitions is none, or not one range.
        """
        step = step_of(context)
        if asset_key is None or isinstance(context, dg.OutputContext):
            asset_key = context.asset_key
        node = step.job_def.asset_layer.get(asset_key)
        run = step.dagster_run
        again = run.tags.get(DOES_AGAIN)
        root = again or run.root_run_id or run.run_id
        partitions_def = node.partitions_def
        return AssetStep(
            asset=asset_key,
            keys=None if partitions_def is None else _keys(step, asset_key, partitions_def),
            partitions_def=partitions_def,
            metadata=node.metadata,
            code_version=node.code_version,
            job=run.job_name,
            run=run.run_id,
            root_run=root,
            chain=chain_of(run, step.instance, asset_key),
            try_number=step.previous_attempt_count + (1 if root == run.run_id else 2),
            is_one_of_many=BACKFILL_ID_TAG in run.tags
            and partitions_def is not None
            and node.backfill_policy is None,
            step=step,
        )

    @property
    def idempotency_key(self) -> str:
        """The idempotency key of what this step writes: the same in every run that was re-executed
        from one first run, and for the same range of partition keys only, whichever keys that range
        has by now."""
        return idempotency_key_of(self.root_run, self.asset, self.keys)

    def run_rank(self, paths: Mapping[str, str]) -> RunRanks:
        """Rank the run in each partition: by the end of its key's time window; of runs for one
        window, and where keys are no times, by when the first run of the chain was made.

        :param paths: the partitions of the keys.
        """
        record = self.step.instance.get_run_record_by_id(self.root_run)
        made = self.step.instance.get_run_record_by_id(self.run) if record is None else record
        assert made is not None  # This run is under way.
        then = made.create_timestamp
        ranks = {UNPARTITIONED: RunRank.of(then)}
        for key, path in paths.items():
            end = _window_end(self.partitions_def, key)
            rank = RunRank.of(then if end is None else end, then)
            if path not in ranks or rank.is_newer_than(ranks[path]):
                ranks[path] = rank
        return RunRanks(ranks)

    @property
    def owner(self) -> Owner:
        """Who the job's records say runs it."""
        return Owner(
            dag_id=self.job,
            run_id=self.run,
            task_id=self.asset.to_user_string(),
            try_number=self.try_number,
            application=APPLICATION,
            host=socket.gethostname(),
            pid=os.getpid(),
            series=f"{self._op} {digest_of_keys(self.keys)} {self.chain}",
        )

    @property
    def _op(self) -> str:
        """The op of a graph asset that this is, with its key in a map; of any other asset the
        same in all its steps, which Dagster may name otherwise in a run of fewer assets."""
        return self.step.step.key.partition(".")[2] or _WHOLE

    def retries(self, owner: Owner) -> bool:
        """Tell whether this is a retry of what a job of this idempotency key did: that job is then
        reported, and its work not repeated.

        Else somebody asked for the work to be done again; or a blocking check has failed what the
        job wrote, and running again is to mend it.
        """
        chain = _series_of(owner)[2]
        return chain == self.chain and not self._is_refused_by_a_check(owner.run_id)

    def has_keys_of(self, owner: Owner) -> bool:
        """Tell whether the run's range has the partition keys that it had for a job of this
        idempotency key: keys of dynamic partitions come and go, and definitions change."""
        return keys_digest_of(owner) in ("", digest_of_keys(self.keys))

    def _is_refused_by_a_check(self, committed_in: str | None) -> bool:
        """Tell whether a blocking check of the asset has failed since a run committed.

        :param committed_in: that run, of this chain of retries.
        """
        instance = self.step.instance
        for run in _back_to(self.step.dagster_run, committed_in, instance):
            logs = instance.all_logs(run.run_id, dg.DagsterEventType.ASSET_CHECK_EVALUATION)
            for event in (log.dagster_event for log in logs):
                found = None if event is None else event.event_specific_data
                if (
                    isinstance(found, dg.AssetCheckEvaluation)
                    and found.asset_key == self.asset
                    and found.blocking
                    and not found.passed
                ):
                    return True
        return False

    def refuse_second(self, owner: Owner | None, root: TableRoot, job: str | None) -> None:
        """See that the rows of this call are the only ones that this chain of retries has for a
        table: where a job of its idempotency key is reported, they are not written.

        :param owner: of that job; ``None``: there is none.
        :raises InvalidInputError: this try has written or reported the asset before, or another
            op has written it.
        """
        if owner is not None and (op := self._other_op(owner)):
            what = f"The op {op!r} has written the table of the asset "
            what += f"{self.asset.to_user_string()!r}, which the op {self._op!r} writes, too"
        elif self.made(owner) or root.url in _told.get(self.step, ()):
            what = f"The {self} has written this table already"
        else:
            return
        raise InvalidInputError(
            f"{what}; the rows of this second call were not written.",
            table=root.url,
            job=job,
            remedy="Hand all rows over in one call: an iterator of tables or frames is one.",
        )

    def _other_op(self, owner: Owner) -> str:
        """Return the op of the same graph asset and chain that a job is of; ``""``: it is of none,
        or of this one."""
        op, _, chain = _series_of(owner)
        mine = (self.job, self.asset.to_user_string(), self.chain)
        same = (owner.dag_id, owner.task_id, chain) == mine
        return op if same and op != self._op else ""

    def refuse_beside(self, table: AssetTable) -> None:
        """See that no other op of a graph asset has committed its table since this one looked. To
        be called once a job is open: that fences a job of another op that is open, too.

        :raises InvalidInputError: one has: its rows would be taken for an earlier try's.
        """
        if self._op == _WHOLE:
            return
        job = table.job_of_key(self.idempotency_key)
        owner = None if job is None else table.owner_of(job)
        if owner is not None and self._other_op(owner):
            self.refuse_second(owner, table.root, job)

    def note_told(self, root: TableRoot) -> None:
        """Note that this try has told Dagster what a table holds."""
        _told.setdefault(self.step, set()).add(root.url)

    def refuse_mapped(self) -> None:
        """See that no other step of a map writes the table as well.

        :raises InvalidInputError: this is one of them.
        """
        if self.step.step.get_mapping_key() is None:
            return
        raise InvalidInputError(
            f"The asset {self.asset.to_user_string()!r} is written by the step "
            f"{self.step.step.key!r}, one of a map: each would take the place of what the others "
            "have written. Nothing was written.",
            remedy="Collect the rows, and write them in one step; or name another table in each, "
            "by table=.",
        )

    @property
    def is_first(self) -> bool:
        """Whether nothing of this chain of retries has been before."""
        return self.chain == self.run and self.try_number == 1

    def owns(self, owner: Owner) -> bool:
        """Whether a job is of this chain's work on the asset, in whatever run and try."""
        chain = _series_of(owner)[2]
        mine = (self.job, self.asset.to_user_string(), self.chain)
        return (owner.dag_id, owner.task_id, chain) == mine and not self._other_op(owner)

    def made(self, owner: Owner | None) -> bool:
        """Whether a job of this idempotency key is of this very try."""
        mine = (self.run, self.try_number)
        return owner is not None and (owner.run_id, owner.try_number) == mine

    def on_repeat(self, asked: str, committed_by: Owner | None = None) -> str:
        """Return what to do where a job of this idempotency key has committed: report it
        (``skip``) in a retry of what did so, and else load again (``replace_own``).

        :param asked: ``auto``, or one of these, which is then done.
        """
        if asked != "auto":
            return asked
        if committed_by is None:
            return "skip"
        same = self.retries(committed_by) and self.has_keys_of(committed_by)
        return "skip" if same else "replace_own"

    def __str__(self) -> str:
        return f"asset {self.asset.to_user_string()!r} in run {self.run}, try {self.try_number}"


def idempotency_key_of(root_run: str, asset: dg.AssetKey, keys: Sequence[str] | None) -> str:
    """Name what runs write of an asset's partitions that are re-executed from one first run.

    :param keys: in order, of which the first and the last are the same in all these runs.
    """
    digest = digest_of_keys(keys and tuple(dict.fromkeys((keys[0], keys[-1]))))
    return f"{APPLICATION}/{root_run}/{quote('/'.join(asset.path), safe=' /')}/keys-{digest}"


def digest_of_keys(keys: Sequence[str] | None) -> str:
    """Return what tells partition keys from others."""
    said = "" if keys is None else "\n".join(keys)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def keys_digest_of(owner: Owner) -> str:
    """Return the digest of the partition keys that a job's run had; ``""``: it is not known."""
    return _series_of(owner)[1]


def _series_of(owner: Owner) -> tuple[str, str, str]:
    """Read a job's op, the digest of its partition keys, and its chain of retries; ``""`` of what
    is not known."""
    words = (owner.series or "").split(" ")
    return (words[0], words[1], words[2]) if len(words) == 3 else ("", "", words[-1])


#: The tables that a try of a step has told Dagster of, by their URLs.
_told: WeakKeyDictionary[StepExecutionContext, set[str]] = WeakKeyDictionary()


def _window_end(partitions_def: dg.PartitionsDefinition | None, key: str) -> datetime | None:
    """Return the end of a partition key's time window; ``None``: it has none."""
    if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return partitions_def.time_window_for_partition_key(key).end
    if isinstance(partitions_def, dg.MultiPartitionsDefinition):
        keys = partitions_def.get_partition_key_from_str(key).keys_by_dimension
        ends = (
            _window_end(dimension.partitions_def, keys[dimension.name])
            for dimension in partitions_def.partitions_defs
        )
        return next((end for end in ends if end is not None), None)
    return None


def step_of(
    context: dg.AssetExecutionContext | dg.OutputContext | dg.InputContext,
) -> StepExecutionContext:
    """The step that an asset's function or an I/O manager works for."""
    if isinstance(context, dg.AssetExecutionContext):
        return context.op_execution_context.get_step_execution_context()
    return context.step_context


#: The step that this process works for: its run, its key there, and the try.
_at_work: tuple[str, str, int] | None = None


def begin_reads(step: StepExecutionContext, *, unread: bool = False) -> None:
    """Let what other steps of this process have read be no input of this step's jobs: executors
    that have one process for a whole run would take all for made of all.

    :param unread: the step has read nothing yet. Else, where another step was at work before, what
        was read since the last job of this process has ended may be its own.
    """
    global _at_work
    now = step.run_id, step.step.key, step.previous_attempt_count
    if now != _at_work and (unread or _at_work is not None):
        forget_reads(before_last_job=not unread)
    _at_work = now


def chain_of(run: DagsterRun, instance: DagsterInstance, asset: dg.AssetKey) -> str:
    """The first run of the chain of retries that a run's work on an asset belongs to.

    A run that somebody re-executed as a whole, or by steps of his choice, begins a chain of its
    own: it is meant to do again what was done.
    """
    while (parent := _retried(run, instance, asset)) is not None:
        run = parent
    return run.run_id


def _back_to(run: DagsterRun, first: str | None, instance: DagsterInstance) -> Iterator[DagsterRun]:
    """Yield a run, and those that it was re-executed from, back to one of them."""
    found: DagsterRun | None = run
    while found is not None:
        yield found
        if found.run_id == first or found.parent_run_id is None:
            return
        found = instance.get_run_by_id(found.parent_run_id)


def _retried(run: DagsterRun, instance: DagsterInstance, asset: dg.AssetKey) -> DagsterRun | None:
    """The run that this one retries; ``None`` where it is none of a retry's, or that is gone."""
    parent = None if run.parent_run_id is None else instance.get_run_by_id(run.parent_run_id)
    # Tags of a run are handed on to one that is made from it as a whole: only what failed is
    # retried.
    if parent is None or parent.is_success:
        return None
    tags = run.tags
    marked = tags.get(RESUME_RETRY_TAG) == "true" or RETRY_NUMBER_TAG in tags
    if not marked and tags.get(ASSET_RESUME_RETRY_TAG) == "true":
        # Of a run that has this tag, one that is made from it as a whole gets it, too.
        marked = asset in _assets_left_undone(parent, instance)
    return parent if marked or _does_what_is_undone(run, parent, instance) else None


def _assets_left_undone(run: DagsterRun, instance: DagsterInstance) -> AbstractSet[dg.AssetKey]:
    """Return the assets that Dagster runs again of a run that is re-executed from its failed
    assets."""
    plan = run.execution_plan_snapshot_id
    if plan is None:
        return frozenset()
    snapshot = instance.get_execution_plan_snapshot(plan)
    return instance.run_domain.get_keys_to_reexecute(run.run_id, snapshot)[0]


def _does_what_is_undone(run: DagsterRun, parent: DagsterRun, instance: DagsterInstance) -> bool:
    """Whether a run executes just the steps that its parent left undone. Dagster's Python API marks
    a run so that it re-executes from a failure by nothing but its plan."""
    plan, steps = run.execution_plan_snapshot_id, run.step_keys_to_execute
    if plan is None or steps is None or not parent.is_finished or STEP_SELECTION_TAG in run.tags:
        return False
    known = instance.get_execution_plan_snapshot(plan).initial_known_state
    if known is None or known.parent_state is None:
        return False
    undone, _ = KnownExecutionState.build_resume_retry_reexecution(instance, parent)
    return set(steps) == set(undone)


def _keys(
    step: StepExecutionContext, asset: dg.AssetKey, partitions_def: dg.PartitionsDefinition
) -> tuple[str, ...]:
    """The keys between the ends of a run's range; not the time between them, which may hold keys
    that were not asked for.

    :raises InvalidInputError: none, keys that this asset has not, or a range that can be read in
        two ways.
    """
    if not step.has_partitions:
        raise _wrong_range(asset, "names none, and the asset has partitions")
    ends = step.partition_key_range
    shown = f"of {ends.start}" if ends.start == ends.end else f"from {ends.start} to {ends.end}"
    with dg.partition_loading_context(dynamic_partitions_store=step.instance):
        for key in (ends.start, ends.end):
            if not partitions_def.has_partition_key(key):
                raise _wrong_range(asset, f"{shown} names {key!r}, which is no partition of it")
        keys = tuple(partitions_def.get_partition_keys_in_range(ends))
        if not keys or (keys[0], keys[-1]) != (ends.start, ends.end):
            raise _wrong_range(asset, f"{shown} goes backwards")
        if isinstance(partitions_def, dg.MultiPartitionsDefinition):
            _check_one_range(asset, partitions_def, keys, shown)
    return keys


def _check_one_range(
    asset: dg.AssetKey,
    partitions_def: dg.MultiPartitionsDefinition,
    keys: Sequence[str],
    shown: str,
) -> None:
    """See that a range over several dimensions means the same keys, whether it is read dimension
    by dimension, as Dagster does, or in the order in which its partitions are shown. The ranges of
    Dagster's own backfills vary in one dimension only."""
    ends = (partitions_def.get_partition_key_from_str(key) for key in (keys[0], keys[-1]))
    first, last = (end.keys_by_dimension for end in ends)
    if sum(first[name] != last[name] for name in first) < 2:
        return
    row = partitions_def.get_partition_keys()
    in_a_row = row[row.index(keys[0]) : row.index(keys[-1]) + 1]
    if set(in_a_row) != set(keys):
        raise _wrong_range(
            asset,
            f"{shown} names {len(keys)} partitions dimension by dimension, and {len(in_a_row)} "
            "in a row",
        )


def _wrong_range(asset: dg.AssetKey, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"The run's range of partitions {what} (asset {asset.to_user_string()!r}); nothing was "
        "written.",
        remedy="Launch a backfill of the partitions wanted: Dagster makes a run of each contiguous "
        "range.",
    )
