"""Policies of a write that Hadoop's committers cannot keep: one table of what each would leave
undone. Whoever takes a policy for a write asks it, so that none is taken and passed over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..committer.errors import InvalidInputError
from ..committer.format.job_spec import Mode, OnConflict, TableLayout
from .hadoop.settings import CONFLICT_MODE_OF, NATIVE

#: What a load says of other runs.
ABOUT_RUNS = ("on_conflict", "on_superseded", "run_rank")
_WAIT = "wait_for_other_runs"
#: What keeps it.
_NATIVELY = f"write natively, by committer={NATIVE!r}"


@dataclass(frozen=True)
class UnkeptPolicy:
    """A policy that Hadoop's committers cannot keep.

    :param why: what they do in its place, after ``is given with the committer magic,``.
    :param remedy: what to do besides leaving it out or writing natively.
    :param kept: the value that says what they do anyway.
    """

    why: str
    remedy: str = ""
    kept: str | None = None


#: By the name of an argument, or of a member of a connection or a resource.
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
#: What a program that no operator submits may be told by variables, and only an operator keeps.
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

    :param said: by names of the rows; ``None``, or empty: not said.
    :param undone: what has not happened, for the error.
    :raises InvalidInputError: the committer is one of Hadoop's, and passes the policy over.
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
    """Refuse a policy about other runs where nobody keeps a committer of Hadoop's from meeting
    them: the operator that submits it does.

    :param said: ``on_conflict``, ``on_superseded``, ``run_rank`` and ``wait_for_other_runs``, each
        ``None`` if not given.
    :raises InvalidInputError: it is one of Hadoop's, and is to notice other runs.
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
    """Refuse options of this package's own writer with a committer of Hadoop's, whose rows Spark's
    Parquet writer writes: that passes over what it does not know.

    :param own: those that are given.
    :raises InvalidInputError: there are some.
    """
    for name in own:
        raise InvalidInputError(
            f"options[{name!r}] is one of the native writer's, and the committer is {committer}, "
            "whose writer is Spark's own for Parquet and passes it over. Nothing was written.",
            remedy=f"Leave it out, or {_NATIVELY}.",
        )


def check_s3a_options(committer: str, mode: Mode | None, options: Mapping[str, Any]) -> None:
    """Refuse options of Hadoop's committers that say nothing to the committer that is to write, or
    something else than the load's mode.

    :param options: the operator's, not the connection's, which are for those loads that Hadoop's
        committers write.
    :raises InvalidInputError: it is so.
    """
    given = sorted(name for name, value in options.items() if value is not None)
    if committer == NATIVE and given:
        raise InvalidInputError(
            f"s3a_options has {', '.join(given)}, and the committer is {NATIVE}, which "
            "has none of Hadoop's options. Nothing was submitted.",
            remedy="Leave s3a_options out; encryption is the connection's, storage_class and the "
            "files' sizes are options of save(). Or choose one of Hadoop's committers.",
        )
    asked = options.get("conflict_mode")
    if asked is not None and mode is not None and CONFLICT_MODE_OF.get(mode) != asked:
        raise InvalidInputError(
            f"s3a_options['conflict_mode'] is {asked!r}, and mode is {mode}, by which save() "
            "chooses it. Nothing was submitted.",
            remedy="Leave one of the two out.",
        )
