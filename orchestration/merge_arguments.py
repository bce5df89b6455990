"""Arguments of a load that merges rows by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..committer.errors import InvalidInputError
from ..committer.format.job_spec import Mode
from ..s3a.hadoop.settings import NATIVE
from .runs.arguments import read_flag, read_names

#: Arguments that only mode merge takes.
OF_MERGES = ("merge_on", "delete_when", "latest_by", "across_partitions")


def listed_columns(given: object) -> tuple[str, ...]:
    """Return the columns of ``merge_on``: a list, or a text with commas between them."""
    return read_names("merge_on", given, ",", "columns", "names such as id")


def read_across(given: object) -> bool | None:
    """Read ``across_partitions``, from a boolean or one of Airflow's words for booleans.

    :return: as a hand-off has it: ``True`` if rows match rows of all partitions, ``None`` if they
        match only rows of their own partition.
    :raises InvalidInputError: anything else.
    """
    return True if read_flag("across_partitions", given) else None


def _is_said(name: str, value: object) -> bool:
    """Return whether an argument has a value that asks for a merge."""
    if value is not None and name == "across_partitions":
        return read_across(value) is True
    # A pyarrow condition (``delete_when``) raises an error for bool(): it counts as given.
    return bool(value) if value is None or isinstance(value, Sequence) else True


def check_merge(said: Mapping[str, Any], committer: str | None) -> None:
    """Check the arguments of merges: mode merge needs a key, and other modes take none.

    :param said: a load's arguments by name.
    :param committer: ``None`` if it is not known yet.
    :raises InvalidInputError: a merge without key or with another committer, or an argument of
        merges in another mode.
    """
    merges = said["mode"] is not None and Mode.parse(said["mode"]) is Mode.MERGE
    if merges and not said["merge_on"]:
        raise InvalidInputError(
            "mode is merge, and merge_on names no column; nothing was written.",
            remedy="Give the key's columns: merge_on=['id'].",
        )
    given = [name for name in OF_MERGES if _is_said(name, said[name])]
    if given and not merges:
        raise InvalidInputError(
            f"{given[0]} is given, and mode is not merge; nothing was written.",
            remedy=f"Give mode='merge' and merge_on, or leave {' and '.join(given)} out.",
        )
    if merges and committer not in (None, NATIVE):
        raise InvalidInputError(
            f"mode is merge, and the committer is {committer}: tables of Hadoop's committers have "
            "no state that a merge could be held against. Nothing was written.",
            remedy="Give mode='overwrite' and whole partitions, or committer='zero_rename'.",
        )
