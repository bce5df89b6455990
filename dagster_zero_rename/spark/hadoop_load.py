"""Load of one asset by an application that writes by one of Hadoop's committers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from zero_rename.committer.errors import InvalidInputError
from zero_rename.committer.format.job_spec import Mode, OnConflict, OnSuperseded
from zero_rename.committer.format.layout import UNPARTITIONED
from zero_rename.committer.format.run_rank import RunRank
from zero_rename.orchestration.merge_arguments import check_merge
from zero_rename.orchestration.s3a.configuration import (
    LoadRequest,
    SparkCall,
    asked_options,
    check_on_service,
    check_submission,
    committer_settings,
    encryption_of,
    render,
)
from zero_rename.orchestration.s3a.conflicts import ConflictPolicy
from zero_rename.orchestration.s3a.load import S3ALoad, loaded_by_s3a
from zero_rename.orchestration.s3a.settling import last_load, taken_plan
from zero_rename.s3a.hadoop.settings import Committer
from zero_rename.s3a.services import RULES, check_word

from ..event_metadata import JOB, PARTITION_ROW_COUNT, ROW_COUNT, data_version, partition_url
from ..failures import final_failures
from ..waiting import rival_wait
from .service_request import completed, seen, service_named
from .spark_load import SparkLoad, check_application_policies, run_paths

if TYPE_CHECKING:
    from dagster import PipesExecutionResult

    from zero_rename.committer import Table
    from zero_rename.committer.format.handoff import Handoff
    from zero_rename.committer.upkeep.access_policy import Service

    from ..asset_step import AssetStep
    from ..asset_write import WritePolicy

#: Members of ``S3ASettings`` that a store other than AWS needs.
Store = Mapping[str, Any]


@dataclass(frozen=True)
class HadoopLoad(SparkLoad):
    """A load whose rows one of Hadoop's committers commits. It is on record from before its start;
    its settings are checked before, and the files that it left after.

    :param earlier: the report of what this chain of retries has committed before.
    :param tried: this attempt.
    """

    table: Table
    earlier: dict[str, Any] | None
    tried: S3ALoad
    _in_force: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(step: AssetStep, table: Table, policy: WritePolicy, committer: str) -> HadoopLoad:
        """Prepare a load; first recover what the chain of retries has left.

        Waits for an application of the chain that may be at work, until its silence shows that it
        is not.

        :raises InvalidInputError: the table cannot have the run's partition keys as partitions; or
            Hadoop's committers cannot keep a policy; or this very step has written the table
            before; or the run was to settle a conflict, and comes too late. Nothing was submitted.
        :raises OutcomeUnknownError: an earlier attempt is at work, or cannot be recovered now.
        :raises RefusedError: loading again would double rows.
        """
        check_merge(vars(policy), committer)
        paths = run_paths(step, table, policy)
        check_application_policies(policy, committer, tuple(paths.values()))
        mode, about = policy.parsed_mode, OnConflict(policy.on_conflict)
        superseded = OnSuperseded(policy.on_superseded or OnSuperseded.FAIL)
        wanted = LoadRequest(Committer(committer), table.root, mode, tuple(paths.values()))
        conflicts = ConflictPolicy(about, superseded)
        rank = _rank(step, paths, about)
        waiting = rival_wait(step, policy.wait_for_other_runs)
        earlier = loaded_by_s3a(table, step, mode, "auto", about, wanted.partitions)
        last = None if earlier is None else last_load(table, step.idempotency_key)
        owner, uuid = (None, None) if last is None else (last.owner, last.uuid)
        step.refuse_second(owner, table.root, uuid)
        plan = None if earlier is not None else taken_plan(table, step)
        tried = S3ALoad(table, step, wanted, conflicts, rank, plan, waiting)
        return HadoopLoad(step, table, policy, committer, paths, earlier, tried)

    @property
    def is_done(self) -> bool:
        """True if this chain of retries has committed the load."""
        return self.earlier is not None

    @property
    def handoff(self) -> Handoff:
        """The parameters that the application gets. It gets none for conflicts with other runs:
        only this process checks for those."""
        return replace(self.told(), s3a_run=self.tried.uuid)

    def check_call(
        self, call: SparkCall, options: Mapping[str, Any], store: Store, passes_keys: bool
    ) -> dict[str, str]:
        """Check the settings of a spark-submit, and return those of the committer.

        :param options: members of ``S3ASettings``.
        :param store: those of them that say where the store is.
        :param passes_keys: the AWS variables with keys are passed on.
        :raises InvalidInputError: the settings would lose or double rows, or cannot work; nothing
            was submitted.
        """
        conf = render(self.tried.load, self._asked(options), store, self.tried.uuid, passes_keys)
        self._in_force.update(check_submission(self.tried.load, call, conf, self.table))
        return conf

    def complete_request(
        self,
        service: Service | str,
        request: Mapping[str, Any],
        *,
        client: Any = None,
        strict: bool = False,
        s3a_options: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Complete a request as described in :meth:`.spark_load.SparkLoad.complete_request`."""
        with final_failures(self.step.step):
            named = service_named(service)
            check_word(named, self.committer)
            conf = render(
                self.tried.load, self._asked(s3a_options or {}), {}, self.tried.uuid, False
            )
            job = seen(named, request, client)
            row, load = RULES[named], self.tried.load
            settings = check_on_service(load, row, job, conf, self.table, strict)
            self._in_force.update(committer_settings(settings))
            return completed(named, request, self.handoff.pack(), settings, self.policy.secrets)

    def _asked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the committer, and give the records of the load the encryption of
        its files.

        :raises InvalidInputError: the encryption is invalid.
        """
        asked = asked_options(self.policy.encryption, options)
        self.table.driver.encrypt_by_default(encryption_of(asked))
        return asked

    @contextmanager
    def submitted(self) -> Iterator[None]:
        """Keep the attempt on record, with heartbeats, while the block runs. The next attempt, or
        recovery, cleans up after a run that was terminated."""
        with final_failures(self.step.step):
            self._check_asked()
            with self.tried.submitted(self._in_force), self.explained():
                yield

    def _check_asked(self) -> None:
        if not self._in_force:
            raise InvalidInputError(
                f"committer={self.committer!r} is selected by settings of Spark, and nobody has "
                "asked for those of this load. Nothing was submitted.",
                table=self.table.root.url,
                remedy="Submit by SparkPipesClient; or give the client of a service what "
                "load.complete_request(service, request) returns.",
            )

    def result(self, reported: Iterator[PipesExecutionResult] | Any = ()) -> dg.MaterializeResult:
        """Verify the files that the job left, and report what it committed."""
        with final_failures(self.step.step):
            report = self.earlier or self.tried.report()
        tell_report(self.step, self.table, report, self.paths, self.policy.parsed_mode)
        return self.materialized(reported)


def _rank(step: AssetStep, paths: Mapping[str, str], about: OnConflict) -> RunRank | None:
    """Return the rank of a run: with Hadoop's committers, one for all of its partitions.

    :raises InvalidInputError: its partitions have several ranks, and the policy is *newest_run*.
    """
    ranks = step.run_rank(paths)
    found = {ranks.rank(path) for path in paths.values()} or {ranks.rank(UNPARTITIONED)}
    if len(found) == 1:
        return found.pop()
    if about is OnConflict.NEWEST_RUN:
        raise InvalidInputError(
            f"on_conflict='newest_run' compares one time for a run of Hadoop's committers, and "
            f"this run is of {len(paths)} time windows. Nothing was submitted.",
            remedy="Give the asset the backfill policy of one run for each partition, or let "
            "committer='zero_rename' write.",
        )
    return None


def tell_report(
    step: AssetStep, table: Table, report: Mapping[str, Any], paths: Mapping[str, str], mode: Mode
) -> None:
    """Put what a job of Hadoop's committers did into the events of each partition, with the version
    of its files."""
    context, root = step.step, table.root
    step.note_told(root)
    common: dict[str, Any] = {
        "dagster/table_name": root.url.removeprefix("s3://").replace("/", "."),
        "dagster/uri": dg.MetadataValue.url(root.url),
        JOB: report["job"],
        "zero_rename/committer": report["committer"],
        "zero_rename/decided": dg.MetadataValue.timestamp(report["decided_at"]),
        "zero_rename/repeated": report["repeated"],
        "zero_rename/settings": dict(report.get("settings") or {}),
    }
    changed = {entry["partition"]: entry for entry in report["partitions"]}
    whole = report if step.keys is None else {}
    # Other runs may have replaced the rows since an earlier attempt committed.
    are_all = mode is Mode.REPLACE and not report["repeated"]
    common |= _counts(whole, ROW_COUNT if are_all else None)
    context.add_asset_metadata(common, step.asset)
    for key, path in paths.items():
        told = _counts(changed.get(path, _NOTHING), PARTITION_ROW_COUNT if are_all else None)
        told["dagster/uri"] = dg.MetadataValue.url(partition_url(root, path))
        context.add_asset_metadata(told, step.asset, key)
    context.set_data_version(step.asset, data_version(table, paths.values()))


#: The counts of a partition without rows of a job.
_NOTHING = {"rows": 0, "files": 0, "bytes": 0}


def _counts(entry: Mapping[str, Any], in_all: str | None) -> dict[str, Any]:
    """Return metadata with the counts of a partition. Counts that are not known are left out.

    :param in_all: Dagster's name for the number of all rows there; ``None``: it is not known.
    """
    found = {f"zero_rename/{name}": entry.get(name) for name in _NOTHING}
    if in_all is not None:
        found[in_all] = entry.get("rows")
    return {name: value for name, value in found.items() if value is not None}
