"""Policies of a write that Hadoop's committers cannot keep, in one table.

All code that takes a policy for a write checks it here, so that no policy is silently ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..committer.errors import InvalidInputError
from ..committer.format.job_spec import Mode, OnConflict, TableLayout
from .hadoop.settings import CONFLICT_KEY, CONFLICT_MODE_OF, NATIVE, STAGING

#: Policies of a load about other runs.
ABOUT_RUNS = ("on_conflict", "on_superseded", "run_rank")
_WAIT = "wait_for_other_runs"
#: Part of a remedy: the committer that keeps the policy.
_NATIVELY = f"write natively, by committer={NATIVE!r}"


@dataclass(frozen=True)
class UnkeptPolicy:
    """A policy that Hadoop's committers cannot keep.

    :param why: what they do instead, as the end of ``is given with the committer magic, …``.
    :param remedy: what to do, other than leaving the policy out or writing natively.
    :param kept: the value that asks for what they do anyway; it is accepted.
    """

    why: str
    remedy: str = ""
    kept: str | None = None


#: Policies by the name of an argument, or of a member of a connection or a resource.
UNKEPT: Mapping[str, UnkeptPolicy] = {
    "layout": UnkeptPolicy(
        "which writes directories", "Give layout='directory'", TableLayout.DIRECTORY
    ),
    "data_root": UnkeptPolicy(
        "which writes into the destination itself", "Use a connection or resource without data_root"
    ),
    "success_markers": UnkeptPolicy(
        "which puts _SUCCESS into each folder that a job of its own writes",
        "Use a connection without success_markers",
    ),
    "code_version": UnkeptPolicy("whose jobs leave no record of it"),
    "catalog": UnkeptPolicy(
        "whose destinations have no record of columns and partitions to register",
        "Give catalog='', and register the destination by a crawler",
    ),
    "schema_mode": UnkeptPolicy("which takes the columns of each job as they are"),
    "content": UnkeptPolicy("which writes files of identical rows anew"),
    "base": UnkeptPolicy("whose destinations have no states"),
}
#: Policies that only an operator keeps, in the variables of a program that no operator submitted.
UNKEPT_ALONE: Mapping[str, UnkeptPolicy] = {
    "idempotency_key": UnkeptPolicy("which writes again where a run is repeated"),
    "on_repeat": UnkeptPolicy("which writes again where a run is repeated"),
    "encryption": UnkeptPolicy(
        "which asks the store for what the session's settings say",
        "Set spark.hadoop.fs.s3a.encryption.algorithm for the session",
    ),
}


def check_kept(
    committer: str,
    said: Mapping[str, Any],
    undone: str = "Nothing was submitted",
    rows: Mapping[str, UnkeptPolicy] = UNKEPT,
) -> None:
    """Refuse a policy that a committer cannot keep.

    :param said: the given values by the names of the rows; ``None`` or empty: not given.
    :param undone: what has not happened, for the error.
    :raises InvalidInputError: the committer is one of Hadoop's, and would ignore the policy.
    """
    if committer == NATIVE:
        return
    for name, row in rows.items():
        value = said.get(name)
        if not value or value == row.kept:
            continue
        others = f"{row.remedy}, leave it out" if row.remedy else "Leave it out"
        raise InvalidInputError(
            f"{name}={str(value)!r} is given with the committer {committer}, {row.why}. {undone}.",
            remedy=f"{others}, or {_NATIVELY}.",
        )


def check_unwatched(committer: str, said: Mapping[str, Any]) -> None:
    """Refuse a policy about other runs if no operator submits the load.

    Hadoop's committers notice no other runs. Only the operator that submits the load does.

    :param said: ``on_conflict``, ``on_superseded``, ``run_rank`` and ``wait_for_other_runs``, each
        ``None`` if not given.
    :raises InvalidInputError: the committer is one of Hadoop's, and a policy is given that it
        cannot keep.
    """
    if committer == NATIVE:
        return
    for name in (*ABOUT_RUNS, _WAIT):
        value = said.get(name)
        if value is None or value == OnConflict.LAST_WINS:
            continue
        raise InvalidInputError(
            f"{name}={str(value)!r} is given with the committer {committer}, which notices no "
            "other runs by itself; nothing was written.",
            remedy="Leave it out, let Airflow's ZeroRenameSparkSubmitOperator submit the "
            f"application, or {_NATIVELY}.",
        )


def check_writer_options(committer: str, own: Iterable[str]) -> None:
    """Refuse options of this package's own writer with one of Hadoop's committers.

    With those, Spark's Parquet writer writes the rows, and ignores options that it does not know.

    :param committer: one of Hadoop's.
    :param own: the options of the own writer that are given.
    :raises InvalidInputError: at least one is given.
    """
    for name in own:
        raise InvalidInputError(
            f"options[{name!r}] is one of the native writer's, and the committer is {committer}, "
            "whose writer is Spark's own for Parquet and passes it over. Nothing was written.",
            remedy=f"Leave it out, or {_NATIVELY}.",
        )


def check_s3a_options(committer: str, mode: Mode | None, options: Mapping[str, Any]) -> None:
    """Refuse options of Hadoop's committers that do not fit the committer or the mode.

    :param options: the operator's. Not the connection's, which count only for loads that Hadoop's
        committers write.
    :raises InvalidInputError: options are given with the native committer, or a conflict mode that
        contradicts the load's mode.
    """
    given = sorted(name for name, value in options.items() if value is not None)
    if committer == NATIVE and given:
        raise InvalidInputError(
            f"s3a_options has {', '.join(given)}, and the committer is {NATIVE}, which "
            "has none of Hadoop's options. Nothing was submitted.",
            remedy="Leave s3a_options out; encryption is the connection's, storage_class and the "
            "files' sizes are options of save(). Or choose one of Hadoop's committers.",
        )
    _check_conflict_mode("s3a_options['conflict_mode']", options.get("conflict_mode"), mode)


def check_conf(committer: str, mode: Mode | None, conf: Mapping[str, Any]) -> None:
    """Refuse a conflict mode in the settings of a job that contradicts the mode of its load.

    An application without ``save()`` would follow it, and other runs would expect what the mode
    says.

    :param conf: the user's own settings.
    :raises InvalidInputError: there is one.
    """
    key = f"spark.hadoop.{CONFLICT_KEY}"
    asked = conf.get(key)
    if committer in STAGING and asked is not None:
        _check_conflict_mode(f"conf[{key!r}]", str(asked).strip().lower(), mode)


def _check_conflict_mode(name: str, asked: str | None, mode: Mode | None) -> None:
    if asked is not None and mode is not None and CONFLICT_MODE_OF.get(mode) != asked:
        raise InvalidInputError(
            f"{name} is {asked!r}, and mode is {mode}, by which save() chooses it. Nothing was "
            "submitted.",
            remedy="Leave one of the two out.",
        )
