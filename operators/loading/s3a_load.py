"""Loads by Hadoop's committers, whichever operator submits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...committer.errors import StoreRefusedError
from ...committer.format.job_spec import OnConflict, OnSuperseded
from ...committer.format.layout import UNPARTITIONED
from ...orchestration.runs.arguments import read_mapping, read_text, read_whole
from ...provider.failures import ended_for_good
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
    """Return what is asked of the committer; the encryption as the connection has it for tables,
    unless it is asked for here.

    :param options: the operator's, which win over the connection's.
    """
    # On use: DAG files are parsed by processes that submit nothing.
    from ...orchestration.s3a.configuration import asked_options

    settings = load.hook.settings
    return asked_options(settings.encryption, settings.s3a_options or {}, options)


def encrypt_records(load: TableLoad, options: Mapping[str, Any]) -> None:
    """Let the records of a load have the encryption that is asked for its files.

    :raises InvalidInputError: an encryption that there is not.
    """
    from ...orchestration.s3a.configuration import encryption_of

    load.directories.driver.encrypt_by_default(encryption_of(asked_of(load, options)))


def loaded_before(load: TableLoad, on_repeat: str) -> dict[str, Any] | None:
    """Settle what the run's earlier tries have done by Hadoop's committers, whichever it is to use
    now, as :func:`~.orchestration.s3a.load.loaded_by_s3a` does.

    :param on_repeat: the operator's.
    :return: the report where nothing is to be loaded.
    """
    from ...orchestration.s3a.load import loaded_by_s3a

    said = load.handoff
    if load.is_delta:
        return None  # They write none.
    try:
        with ended_for_good():
            return loaded_by_s3a(load.directories, load.run, said.mode, on_repeat, said.on_conflict)
    except StoreRefusedError:
        if load.committer != NATIVE:
            raise
        # Who may not look into the ledger has put no try on record there.
        return None


def policy_of(load: TableLoad) -> ConflictPolicy:
    """Return what a load does about other runs of its partitions."""
    # On use: DAG files are parsed by processes that submit nothing.
    from ...orchestration.s3a.conflicts import ConflictPolicy

    said = load.handoff
    return ConflictPolicy(
        said.on_conflict or OnConflict.FAIL, said.on_superseded or OnSuperseded.FAIL
    )


def s3a_load_of(load: TableLoad, waiting: RivalWait | None) -> S3ALoad:
    """Return a new try of a load by one of Hadoop's committers.

    :param waiting: how long it waits for other runs of its partitions; ``None``: not at all.
    :raises InvalidInputError: a policy that they cannot keep to; or a plan has let it settle a
        conflict, and it comes too late.
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
    """Return a load whose application is told which try it is of. What there is to do about other
    runs is done by the operator: the application could not."""
    ours: dict[str, Any] = {"on_conflict": None, "on_superseded": None, "run_rank": None}
    committer = str(s3a_load.load.committer)
    return replace(
        load, handoff=replace(load.handoff, committer=committer, s3a_run=s3a_load.uuid, **ours)
    )
