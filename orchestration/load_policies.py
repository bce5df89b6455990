"""Checks of a load's policies: those that its committer cannot keep are refused at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ..committer.errors import InvalidInputError
from ..committer.format.job_spec import (
    Distribute,
    Mode,
    OnConflict,
    OnSuperseded,
    SuccessMarkers,
    TableLayout,
    check_superseded,
)
from ..committer.store.fast_root import FastRoot
from ..s3a.hadoop.settings import NATIVE
from ..s3a.policies import check_kept, check_s3a_options
from .merge_arguments import check_merge
from .runs.arguments import read_flag

if TYPE_CHECKING:
    from ..committer import Table

_UNDONE = "Nothing was submitted"


def check_policies(
    committer: str, said: Mapping[str, Any], s3a_options: Mapping[str, Any] | None = None
) -> None:
    """Refuse policies of a load that its committer cannot keep.

    :param said: the policies of an operator and its connection by name: the fields of
        :class:`.Handoff`, and ``catalog``. A policy that is ``None`` or left out was not given.
        ``mode`` and the arguments of a merge must not be left out.
    :param s3a_options: the operator's argument.
    :raises InvalidInputError: names the policy, and why it cannot be kept.
    """
    check_merge(said, committer)
    check_kept(committer, said, _UNDONE)
    if said.get("layout") is TableLayout.DELTA:
        _check_of_delta(said)
    elif committer == NATIVE and said.get("data_root"):
        refuse_data_root(said["data_root"], _UNDONE)
    if said.get("publish") is False:
        _check_held_back(committer, said)
    check_s3a_options(committer, said.get("mode"), s3a_options or {})
    on_conflict = said.get("on_conflict")
    if on_conflict is not None or said.get("on_superseded") is not None:
        of_runs = OnConflict(on_conflict or OnConflict.FAIL)
        skips = OnSuperseded(said.get("on_superseded") or OnSuperseded.FAIL)
        check_superseded(of_runs, skips, "nothing was submitted")
    if said.get("mode") is Mode.MERGE:
        _check_of_merge(on_conflict, said.get("distribute"))
    if said.get("mode") is Mode.FAIL_IF_EXISTS and on_conflict == OnConflict.NEWEST_RUN:
        raise InvalidInputError(
            "on_conflict=newest_run is about partitions that other runs have loaded, and mode "
            f"fail-if-exists writes to none of these. {_UNDONE}.",
            remedy="Append or overwrite, or leave on_conflict out.",
        )
    if committer != NATIVE:
        # Imported on use: processes that only parse DAG files need not load it.
        from .s3a.conflicts import ConflictPolicy, check_policy

        policy = ConflictPolicy(OnConflict(on_conflict or OnConflict.FAIL))
        check_policy(policy, said.get("mode"), bool(said.get("partitions")))


def _check_of_delta(said: Mapping[str, Any]) -> None:
    """Refuse policies that a Delta table cannot keep.

    :raises InvalidInputError: names the policy.
    """
    if said.get("success_markers") == SuccessMarkers.PARTITION_AND_TABLE:
        raise InvalidInputError(
            "layout=delta is given for a table with success_markers=partition_and_table, which has "
            f"no partitions' directories. {_UNDONE}.",
            remedy="Leave one of the two out.",
        )


def refuse_data_root(data_root: FastRoot | str, undone: str) -> NoReturn:
    """Refuse a data root for a table of directories.

    :param undone: what was not done, as the beginning of a sentence.
    :raises InvalidInputError: always.
    """
    raise InvalidInputError(
        f"data_root={FastRoot.parse(data_root)} is of Delta tables, and is given for a table of "
        f"directories. {undone}.",
        remedy="Give layout='delta', or leave data_root out of the connection or resource.",
    )


def read_publish(given: object) -> bool | None:
    """Read the argument ``publish``, from a boolean or one of Airflow's words for booleans.

    :return: as a hand-off has it: ``None`` if the rows become visible when the load ends,
        ``False`` if they are held back.
    :raises InvalidInputError: anything else.
    """
    return None if read_flag("publish", given) else False


def _check_held_back(committer: str, said: Mapping[str, Any]) -> None:
    """Refuse ``publish=False`` for a load whose rows cannot be held back.

    :raises InvalidInputError: says why.
    """
    whys = {
        f"the committer {committer}, whose files are there as its job commits": committer != NATIVE,
        "a table of directories, whose files are there for whoever lists them": said.get("layout")
        is not TableLayout.DELTA,
        "mode=merge, which commits as it ends": said.get("mode") is Mode.MERGE,
        "on_superseded=skip, which leaves rows out as a job commits": said.get("on_superseded")
        == OnSuperseded.SKIP,
    }
    why = next((name for name, is_so in whys.items() if is_so), None)
    if why is not None:
        raise InvalidInputError(
            f"publish=False is given with {why}. {_UNDONE}.",
            remedy="Append to or overwrite a Delta table, by layout='delta'; or leave publish out.",
        )


def _check_of_merge(on_conflict: OnConflict | str | None, distribute: Distribute | None) -> None:
    if on_conflict not in (None, OnConflict.FAIL):
        raise InvalidInputError(
            f"mode is merge, and on_conflict={on_conflict}: a merge goes by the state that it "
            f"reads, and reads anew where another job changes a partition. {_UNDONE}.",
            remedy="Give on_conflict='fail', or leave it out of the task and its connection. Let "
            "the newest of several rows of a key count by latest_by=<a column that says when>.",
        )
    if distribute is Distribute.NONE:
        raise InvalidInputError(
            "mode is merge, and distribute=none: a merge always brings the rows of a partition "
            f"together. {_UNDONE}.",
            remedy="Leave distribute out.",
        )


def check_table_data_root(table: Table, said: Mapping[str, Any]) -> None:
    """Refuse a data root other than the one that the Delta table has. Reads the table's log.

    :param said: ``layout`` and ``data_root``, each ``None`` if it is not given.
    :raises InvalidInputError: the data root lies in the table.
    :raises TableMismatchError: the table has another data root.
    """
    if said.get("layout") is TableLayout.DELTA and said.get("data_root"):
        from ..tables.table_at import delta_at  # Lazy: it loads Parquet readers.

        delta_at(table).refuse_other_data_root(said["data_root"])
