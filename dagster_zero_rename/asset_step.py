"""Step that writes one asset: its run, its partition keys, its chain of retries."""

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
from dagster._core.errors import DagsterInvalidPropertyError
from dagster._core.execution.plan.state import KnownExecutionState
from dagster._core.storage.tags import (
    ASSET_RESUME_RETRY_TAG,
    BACKFILL_ID_TAG,
    RESUME_RETRY_TAG,
    RETRY_NUMBER_TAG,
    STEP_SELECTION_TAG,
)

from zero_rename.committer.errors import InvalidInputError, first_few
from zero_rename.committer.format.job_spec import Owner
from zero_rename.committer.format.layout import UNPARTITIONED, TableRoot
from zero_rename.committer.format.run_rank import RunRank, RunRanks
from zero_rename.committer.scan.reads import forget_reads
from zero_rename.committer.table import Table
from zero_rename.tables import DeltaTable

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun
    from dagster._core.execution.context.system import StepExecutionContext

    from zero_rename.committer.format.records.failure import Failure

#: Tag of a run that settles a conflict: the first run of the chain whose work it does again.
DOES_AGAIN = "zero_rename/does_again"
#: Value in a job's idempotency key and owner which says that Dagster ran the job.
APPLICATION = "dagster"
#: The op of an asset that is not made by a graph.
_WHOLE = "-"
#: An asset's table, of either layout.
AssetTable = Table | DeltaTable
#: The context of an asset's function, or of an op of a graph asset.
FunctionContext = dg.AssetExecutionContext | dg.OpExecutionContext


@dataclass(frozen=True)
class AssetStep:
    """One attempt at one asset, with the facts that the commit protocol needs.

    :param asset: its key.
    :param keys: the partition keys that the run asks for, in order; ``None``: it has no partitions.
    :param metadata: of the asset's definition; so is ``code_version``.
    :param chain: the first run of a chain of retries, by its id. A run that was re-executed from
        its failure, or retried by Dagster itself, continues the chain of the run before.
    :param try_number: the attempt at the step within its run, counted from 1; from 2 if the run
        does an older run's work again, or was re-executed from one.
    :param is_one_of_many: a backfill starts a run for each partition, since the asset has no policy
        for backfills.
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
        context: FunctionContext | dg.OutputContext, asset_key: dg.AssetKey | None = None
    ) -> AssetStep:
        """Read the step from the context of an asset's function, or of an I/O manager's output.

        :param asset_key: the asset, if the function makes several.
        :raises InvalidInputError: the run's range of partitions is invalid, or not one range; or
            the step does not make this asset in this run.
        """
        step = step_of(context)
        if isinstance(context, dg.OutputContext):
            asset_key = context.asset_key
        else:
            asset_key = _asset_of(step, asset_key)
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
        """The idempotency key of what this step writes. All runs that were re-executed from one
        first run have the same key for the same range of partition keys, even if the range has
        other keys by now."""
        return idempotency_key_of(self.root_run, self.asset, self.keys)

    def run_rank(self, paths: Mapping[str, str]) -> RunRanks:
        """Rank the run in each partition, by the end of the time window of its key. Runs for one
        window are ranked by the creation time of the first run of the chain; so are all runs if
        keys are not times.

        :param paths: the partitions, by their keys.
        """
        record = self.step.instance.get_run_record_by_id(self.root_run)
        made = self.step.instance.get_run_record_by_id(self.run) if record is None else record
        assert made is not None  # This run is in progress, so it has a record.
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
        """The owner that the job's records name."""
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
        """The op of a graph asset, with its key in a map. For any other asset it is the same in all
        steps, since Dagster may name the step otherwise in a run of fewer assets."""
        return self.step.step.key.partition(".")[2] or _WHOLE

    def retries(self, owner: Owner) -> bool:
        """Return whether this step retries what a job of this idempotency key did. The job is then
        reported, and its work is not repeated.

        If not, a user asked for the work to be done again; or a blocking check has failed on what
        the job wrote, and running again shall correct it.
        """
        chain = _series_of(owner)[2]
        return chain == self.chain and not self._is_refused_by_a_check(owner.run_id)

    def has_keys_of(self, owner: Owner) -> bool:
        """Return whether the run's range has the same partition keys now as for a job of this
        idempotency key. Keys of dynamic partitions come and go, and definitions change."""
        return keys_digest_of(owner) in ("", digest_of_keys(self.keys))

    def _is_refused_by_a_check(self, committed_in: str | None) -> bool:
        """Return whether a blocking check of the asset has failed since a run committed. One that
        only warns blocks nothing.

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
                    and found.severity is dg.AssetCheckSeverity.ERROR
                ):
                    return True
        return False

    def has_failed_by(self, told: Failure, root: TableRoot) -> bool:
        """Return whether a step of this chain of retries has failed with an error that an earlier
        attempt's application recorded. Then a person has seen it, who has this run made."""
        instance = self.step.instance
        wanted = {"error": told.error, "table": root.url, "job": told.job}
        for run in _back_to(self.step.dagster_run, told.owner.run_id, instance):
            logs = instance.all_logs(run.run_id, dg.DagsterEventType.STEP_FAILURE)
            for event in (log.dagster_event for log in logs):
                found = None if event is None else event.step_failure_data.user_failure_data
                said = {} if found is None else found.metadata
                texts = {name: said.get(f"zero_rename/{name}") for name in wanted}
                if wanted == {name: getattr(it, "value", it) for name, it in texts.items()}:
                    return True
        return False

    def refuse_second(self, owner: Owner | None, root: TableRoot, job: str | None) -> None:
        """Refuse a second write of the asset's table in one attempt: a job of this idempotency key
        would be reported, and the rows of this call would be lost.

        :param owner: of that job; ``None``: there is no such job.
        :raises InvalidInputError: this attempt has written or reported the asset before, or another
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
        """Return the op that a job belongs to, if it is another op of the same graph asset and
        chain; else ``""``."""
        op, _, chain = _series_of(owner)
        mine = (self.job, self.asset.to_user_string(), self.chain)
        same = (owner.dag_id, owner.task_id, chain) == mine
        return op if same and op != self._op else ""

    def refuse_beside(self, table: AssetTable) -> None:
        """Refuse to write if another op of a graph asset has committed the table since this op read
        it. Call it once a job is open: opening fences an open job of another op.

        :raises InvalidInputError: another op has committed; its rows would be taken for those of an
            earlier attempt.
        """
        if self._op == _WHOLE:
            return
        job = table.job_of_key(self.idempotency_key)
        owner = None if job is None else table.owner_of(job)
        if owner is not None and self._other_op(owner):
            self.refuse_second(owner, table.root, job)

    def note_told(self, root: TableRoot) -> None:
        """Note that this attempt has reported a table's content to Dagster."""
        _told.setdefault(self.step, set()).add(root.url)

    def refuse_mapped(self) -> None:
        """Refuse a write by one step of a map: other steps of it would write the same table.

        :raises InvalidInputError: this step belongs to a map.
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
        """True if this is the first attempt of the chain of retries."""
        return self.chain == self.run and self.try_number == 1

    def owns(self, owner: Owner) -> bool:
        """Return whether a job belongs to this chain's work on the asset, in any run and
        attempt."""
        chain = _series_of(owner)[2]
        mine = (self.job, self.asset.to_user_string(), self.chain)
        return (owner.dag_id, owner.task_id, chain) == mine and not self._other_op(owner)

    def comes_after(self, owner: Owner) -> bool:
        """Return whether an earlier attempt at the same op's work on the asset made a job: one of
        this run, or of a run that this one was re-executed from, in whatever way."""
        op = _series_of(owner)[0]
        mine = (self.job, self.asset.to_user_string())
        if (owner.dag_id, owner.task_id) != mine or op not in ("", self._op):
            return False
        if owner.run_id == self.run:
            return owner.try_number is not None and owner.try_number < self.try_number
        if owner.run_id == self.root_run:
            return True
        before = _back_to(self.step.dagster_run, owner.run_id, self.step.instance)
        return any(run.run_id == owner.run_id for run in before)

    def made(self, owner: Owner | None) -> bool:
        """Return whether a job of this idempotency key belongs to this very attempt."""
        mine = (self.run, self.try_number)
        return owner is not None and (owner.run_id, owner.try_number) == mine

    def on_repeat(self, asked: str, committed_by: Owner | None = None) -> str:
        """Return what to do if a job of this idempotency key has committed. A retry of that job's
        work reports it (``skip``), any other run loads again (``replace_own``).

        :param asked: ``auto``, or one of these, which is then done.
        """
        if asked != "auto":
            return asked
        if committed_by is None:
            return "skip"
        same = self.retries(committed_by) and self.has_keys_of(committed_by)
        return "skip" if same else "replace_own"

    def __str__(self) -> str:
        return f"asset {self.asset.to_user_string()!r} in run {self.run}, attempt {self.try_number}"


def idempotency_key_of(root_run: str, asset: dg.AssetKey, keys: Sequence[str] | None) -> str:
    """Return the idempotency key for an asset's partitions in all runs re-executed from one first
    run.

    :param keys: in order. The key depends on the first and the last one only, which are the same in
        all these runs.
    """
    digest = digest_of_keys(keys and tuple(dict.fromkeys((keys[0], keys[-1]))))
    return f"{APPLICATION}/{root_run}/{_quoted(asset)}/keys-{digest}"


def same_run(idempotency_key: str, asset: dg.AssetKey) -> str:
    """Return the idempotency key of the same run for another asset of the same partition keys."""
    application, root, rest = idempotency_key.split("/", 2)
    digest = rest.rpartition("/")[2]
    return f"{application}/{root}/{_quoted(asset)}/{digest}"


def _quoted(asset: dg.AssetKey) -> str:
    return quote("/".join(asset.path), safe=" /")


def digest_of_keys(keys: Sequence[str] | None) -> str:
    """Return a digest of partition keys, by which they are compared."""
    said = "" if keys is None else "\n".join(keys)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def keys_digest_of(owner: Owner) -> str:
    """Return the digest of the partition keys that a job's run had; ``""``: it is not known."""
    return _series_of(owner)[1]


def _series_of(owner: Owner) -> tuple[str, str, str]:
    """Return a job's op, the digest of its partition keys, and its chain of retries; ``""`` for
    each that is not known."""
    words = (owner.series or "").split(" ")
    return (words[0], words[1], words[2]) if len(words) == 3 else ("", "", words[-1])


#: The tables that an attempt at a step has reported to Dagster, by their URLs.
_told: WeakKeyDictionary[StepExecutionContext, set[str]] = WeakKeyDictionary()


def _window_end(partitions_def: dg.PartitionsDefinition | None, key: str) -> datetime | None:
    """Return the end of a partition key's time window; ``None`` if the key is not a time."""
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


def step_of(context: FunctionContext | dg.OutputContext | dg.InputContext) -> StepExecutionContext:
    """Return the step that an asset's function or an I/O manager works for.

    :raises InvalidInputError: the context is not that of a step in a run, or of a check.
    """
    if isinstance(context, dg.OutputContext | dg.InputContext):
        return context.step_context
    if isinstance(context, dg.AssetExecutionContext):
        context = context.op_execution_context
    if not isinstance(context, dg.OpExecutionContext):
        raise InvalidInputError(
            f"context is of type {type(context).__name__}, and only the functions of assets "
            "write. Nothing was written.",
            remedy="Hand over the context of the asset's function.",
        )
    try:
        return context.get_step_execution_context()
    except DagsterInvalidPropertyError:
        raise InvalidInputError(
            f"{context.op_def.name!r} was called directly, so there is no run whose retries could "
            "be known. Nothing was written.",
            remedy="Run it by dg.materialize([asset], resources={…}, partition_key=…), in tests, "
            "too.",
        ) from None


def _asset_of(step: StepExecutionContext, asset_key: dg.AssetKey | None) -> dg.AssetKey:
    """Return the asset that a step's function writes.

    :param asset_key: the one that the function names; ``None``: it makes only one.
    :raises InvalidInputError: the step does not make it in this run. A run of some of a function's
        assets would otherwise replace the rows of the others.
    """
    if (made := step.assets_def) is None:
        raise InvalidInputError(
            f"The op {step.op.name!r} makes no asset, so nothing says which partitions of which "
            "table it writes. Nothing was written.",
            remedy="Write in an asset's function; or open the table in the op, by the "
            "resource's table(name).job(…).",
        )
    known = sorted(it.to_user_string() for it in made.keys_by_output_name.values())
    if asset_key is None and len(known) == 1:
        return next(iter(made.keys_by_output_name.values()))
    if asset_key is None:
        raise InvalidInputError(
            f"The function {step.op.name!r} makes several assets, {first_few(known)}, and does not "
            "say which of them is written. Nothing was written.",
            remedy="Name it by asset_key=.",
        )
    if asset_key in made.keys:
        return asset_key
    raise InvalidInputError(
        f"asset_key={asset_key.to_user_string()!r} is not among the assets that {step.op.name!r} "
        f"makes in this run, {first_few(known)}. Nothing was written.",
        remedy="Name one of them. If a run makes only some assets of a function, "
        "context.selected_asset_keys has these.",
    )


#: The step that this process works for: its run, its key there, and the attempt.
_at_work: tuple[str, str, int] | None = None


def begin_reads(step: StepExecutionContext, *, unread: bool = False) -> None:
    """Forget the reads of other steps of this process, which are no inputs of this step's jobs.
    Some executors have one process for a whole run, and each job would seem to be made of
    everything.

    :param unread: the step has read nothing yet. Else, if another step was at work before, reads
        since the end of this process's last job are kept: they may be the step's own.
    """
    global _at_work
    now = step.run_id, step.step.key, step.previous_attempt_count
    if now != _at_work and (unread or _at_work is not None):
        forget_reads(before_last_job=not unread)
    _at_work = now


def chain_of(run: DagsterRun, instance: DagsterInstance, asset: dg.AssetKey) -> str:
    """Return the first run of the chain of retries that a run's work on an asset belongs to.

    A run that a user re-executed as a whole, or by steps of their choice, begins a chain of its
    own: it is meant to do again what was done.
    """
    while (parent := _retried(run, instance, asset)) is not None:
        run = parent
    return run.run_id


def _back_to(run: DagsterRun, first: str | None, instance: DagsterInstance) -> Iterator[DagsterRun]:
    """Yield a run and the runs that it was re-executed from, back to a given one."""
    found: DagsterRun | None = run
    while found is not None:
        yield found
        if found.run_id == first or found.parent_run_id is None:
            return
        found = instance.get_run_by_id(found.parent_run_id)


def _retried(run: DagsterRun, instance: DagsterInstance, asset: dg.AssetKey) -> DagsterRun | None:
    """Return the run that this one retries; ``None``: it is not a retry, or its parent no longer
    exists."""
    parent = None if run.parent_run_id is None else instance.get_run_by_id(run.parent_run_id)
    # A run that is re-executed as a whole gets the tags of the run before, so they alone do not
    # show a retry. Only a run that did not succeed is retried.
    if parent is None or parent.is_success:
        return None
    tags = run.tags
    marked = tags.get(RESUME_RETRY_TAG) == "true" or RETRY_NUMBER_TAG in tags
    if not marked and tags.get(ASSET_RESUME_RETRY_TAG) == "true":
        # A run that is re-executed as a whole gets this tag, too, from a run that has it.
        marked = asset in _assets_left_undone(parent, instance)
    return parent if marked or _does_what_is_undone(run, parent, instance) else None


def _assets_left_undone(run: DagsterRun, instance: DagsterInstance) -> AbstractSet[dg.AssetKey]:
    """Return the assets that Dagster runs again if a run is re-executed from its failed assets."""
    plan = run.execution_plan_snapshot_id
    if plan is None:
        return frozenset()
    snapshot = instance.get_execution_plan_snapshot(plan)
    return instance.run_domain.get_keys_to_reexecute(run.run_id, snapshot)[0]


def _does_what_is_undone(run: DagsterRun, parent: DagsterRun, instance: DagsterInstance) -> bool:
    """Return whether a run executes exactly the steps that its parent left undone. If Dagster's
    Python API re-executes a run from its failure, only the plan shows it."""
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
    """Return the keys between the ends of a run's range. A range of times may hold keys that were
    not asked for, so it is not used.

    :raises InvalidInputError: the run has no keys, or keys that this asset does not have, or a
        range that can be read in two ways.
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
    """Refuse a range over several dimensions that can be read in two ways: dimension by dimension,
    as Dagster reads it, or in the order in which its partitions are shown. The ranges of Dagster's
    own backfills vary in one dimension only."""
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
