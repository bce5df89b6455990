"""Arguments of a load that merges rows by key."""

from __future__ import annotations

from collections.abc import Sequence

from ...committer.errors import InvalidInputError
from ...committer.format.job_spec import Mode
from ...orchestration.runs.partitions import listed_texts
from ...s3a.hadoop.settings import NATIVE


def listed_columns(given: object) -> tuple[str, ...]:
    """Columns as a list, or as a text with commas between them."""
    return listed_texts("merge_on", given, ",", "columns", "names such as id")


def check_merge(
    mode: str | None,
    merge_on: str | Sequence[str] | None,
    latest_by: str | None,
    committer: str | None,
) -> None:
    """Mode merge has a key, and the native committer; other modes have no key.

    :param committer: ``None`` where it is not known yet.
    :raises InvalidInputError: it is not so.
    """
    merges = mode is not None and Mode.parse(mode) is Mode.MERGE
    if merges and not merge_on:
        raise InvalidInputError(
            "mode is merge, and merge_on names no column; nothing was submitted.",
            remedy="Give the key's columns: merge_on=['id'].",
        )
    if (merge_on or latest_by) and not merges:
        raise InvalidInputError(
            "merge_on or latest_by is given, and mode is not merge; nothing was submitted.",
            remedy="Give mode='merge', or leave both out.",
        )
    if merges and committer not in (None, NATIVE):
        raise InvalidInputError(
            f"mode is merge, and the committer is {committer}: tables of Hadoop's committers have "
            "no state that a merge could be held against. Nothing was submitted.",
            remedy="Give mode='overwrite' and whole partitions, or committer='zero_rename'.",
        )
