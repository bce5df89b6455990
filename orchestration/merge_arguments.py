"""Arguments of a load that merges rows by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..committer.errors import InvalidInputError
from ..committer.format.job_spec import Mode
from ..s3a.hadoop.settings import NATIVE
from .runs.arguments import read_flag, read_names

#: What only mode merge has.
OF_MERGES = ("merge_on", "delete_when", "latest_by", "across_partitions")


def listed_columns(given: object) -> tuple[str, ...]:
    """Columns as a list, or as a text with commas between them."""
    return read_names("merge_on", given, ",", "columns", "names such as id")


def read_across(given: object) -> bool | None:
    """Read whether rows match those of all partitions, from a boolean or one of Airflow's words for
    it; ``None``, as a handoff has it, where they match those of their own alone.

    :raises InvalidInputError: anything else.
    """
    return True if read_flag("across_partitions", given) else None


def _is_said(name: str, value: object) -> bool:
    """Of a condition of pyarrow's there is no truth."""
    if value is not None and name == "across_partitions":
        return read_across(value) is True
    return bool(value) if value is None or isinstance(value, Sequence) else True


def check_merge(said: Mapping[str, Any], committer: str | None) -> None:
    """Mode merge has a key, and the native committer; other modes have no key.

    :param said: what a load is given, by its arguments' names.
    :param committer: ``None`` where it is not known yet.
    :raises InvalidInputError: it is not so.
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
