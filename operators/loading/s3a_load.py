"""Loads by Hadoop's committers, for any operator that submits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...committer.errors import StoreRefusedError
from ...committer.format.job_spec import OnConflict, OnSuperseded
from ...committer.format.layout import UNPARTITIONED
from ...orchestration.runs.arguments import read_mapping, read_text, read_whole
from ...provider.failures import ended_for_good, final_where_refused
from ...s3a.hadoop.settings import NATIVE, Committer
from .load import TableLoad

if TYPE_CHECKING:
    from ...committer.rival_wait import RivalWait
    from ...orchestration.s3a.conflicts import ConflictPolicy
    from ...orchestration.s3a.load import S3ALoad


def read_options(name: str, given: object) -> dict[str, Any]:
    """Return options of Hadoop's committers: texts, and the number of threads."""
    options = read_mapping(name, given)
    parsers = {key: read_whole if key == "threads" else read_text for key in options}
    return {
        key: None if value is None else parsers[key](f"{name}[{key!r}]", value)
        for key, value in options.items()
    }


def asked_of(load: TableLoad, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the committer, with the connection's encryption as a default.

    :param options: of the operator; they win over the connection's.
    """
    # Imported on use: processes that only parse DAG files need not load it.
    from ...orchestration.s3a.configuration import asked_options

    settings = load.hook.settings
    return asked_options(settings.encryption, settings.s3a_options or {}, options)


def encrypt_records(load: TableLoad, options: Mapping[str, Any]) -> None:
    """Give the records of a load the same encryption as its files.

    :param options: as for :func:`asked_of`.
    :raises InvalidInputError: there is no such encryption.
    """
    from ...orchestration.s3a.configuration import encryption_of

    load.directories.driver.encrypt_by_default(encryption_of(asked_of(load, options)))


def loaded_before(load: TableLoad, on_repeat: str) -> dict[str, Any] | None:
    """Finish or undo the run's earlier attempts with any of Hadoop's committers.

    The committer of the new attempt does not matter, as in
    :func:`~.orchestration.s3a.load.loaded_by_s3a`.

    :param on_repeat: the operator's argument.
    :return: the report of an earlier attempt if nothing is to be loaded, else ``None``.
    """
    from ...orchestration.s3a.load import loaded_by_s3a

    said = load.handoff
    try:
        with ended_for_good(), final_where_refused():
            names = () if load.committer == NATIVE else load.partitions
            about, table = said.on_conflict, load.directories
            return loaded_by_s3a(
                table, load.run, said.mode, on_repeat, about, names, has_log=load.is_delta
            )
    except StoreRefusedError:
        if load.committer != NATIVE:
            raise
        # With credentials that cannot read the ledger, no attempt was recorded there.
        return None


def policy_of(load: TableLoad) -> ConflictPolicy:
    """Return the policy of a load for other runs of its partitions."""
    # Imported on use: processes that only parse DAG files need not load it.
    from ...orchestration.s3a.conflicts import ConflictPolicy

    said = load.handoff
    return ConflictPolicy(
        said.on_conflict or OnConflict.FAIL, said.on_superseded or OnSuperseded.FAIL
    )


def s3a_load_of(load: TableLoad, waiting: RivalWait | None) -> S3ALoad:
    """Return a new attempt of a load by one of Hadoop's committers.

    :param waiting: the wait for other runs of its partitions; ``None``: do not wait.
    :raises InvalidInputError: a policy that these committers cannot keep; or a plan lets the run
        settle a conflict, and the run comes too late for it.
    """
    from ...orchestration.s3a.configuration import LoadRequest
    from ...orchestration.s3a.load import S3ALoad
    from ...orchestration.s3a.settling import taken_plan

    said = load.handoff
    rank = None if said.run_rank is None else said.run_rank.rank(UNPARTITIONED)
    wanted = LoadRequest(Committer(load.committer), load.table.root, said.mode, load.partitions)
    plan = taken_plan(load.directories, load.run)
    return S3ALoad(load.directories, load.run, wanted, policy_of(load), rank, plan, waiting)


def told(load: TableLoad, s3a_load: S3ALoad) -> TableLoad:
    """Return a load whose hand-off names the attempt, for the application.

    The policies for other runs are taken out of the hand-off: only the operator can carry them out.
    """
    ours: dict[str, Any] = {"on_conflict": None, "on_superseded": None, "run_rank": None}
    committer = str(s3a_load.load.committer)
    return replace(
        load, handoff=replace(load.handoff, committer=committer, s3a_run=s3a_load.uuid, **ours)
    )
