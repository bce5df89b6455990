"""Check of what a job brings back, while it holds its claims: that it is still kept, has the
table's columns, and lies where the table's files may lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..errors import CommitConflictError, InvalidInputError
from ..format.layout import TableRoot
from ..format.records.data_file import DataFile
from ..format.records.head import HeadState, PartitionHead
from ..format.records.table_record import TableRecord
from ..store.conditional_put import Uncertain
from ..store.fast_root import is_fast
from ..store.requests import Step
from .past import told_versions
from .state.context import Context
from .state.decide import not_confirmed
from .state.found_table import FoundTable, change_table, existing_table
from .state.job_state import OpenedJob
from .state.partition_files import files_of_heads
from .state.tolerance import undamaged


def check_kept(context: Context, opened: OpenedJob, held: Mapping[str, HeadState]) -> Step[None]:
    """See that what the job brings back is still kept, and that it goes with the table's record.
    While the job holds its claims nobody forgets it, and nobody overwrites the columns.

    Files in a fast root do not go with symlink manifests. So a job that brings such back into a
    table without data root writes the record anew: who noted symlink manifests by a record from
    before is refused, and by a later one finds this job open.

    Requests: none unless the job brings something back; else a GET. In a table that has or had a
    data root also the decisions of what it brings back, and a PUT where files lie in a fast root.

    :param held: the heads, by partition.
    :raises CommitConflictError: it is forgotten; or another job has overwritten the columns, or
        symlink manifests are kept, since it was planned.
    """
    restores = opened.spec.restores
    if not restores:
        return
    bound = False
    while not bound:
        found = yield from existing_table(context)
        former = [
            replace(held[name], head=_former(opened.root, found.record, held[name], version))
            for name, version in restores.items()
        ]
        files = yield from _files_elsewhere(context, found.record, former)
        if files and found.record.symlinks:
            raise CommitConflictError(
                f"What the job brings back lies in a fast root ({files[0].key}), and the table "
                "keeps symlink manifests since the job was planned: these name files in the "
                "table's own bucket. Nothing of this job is visible.",
                key=files[0].key,
                remedy=_either(opened.root),
            )
        bound = not files or found.record.data_root is not None
        bound = bound or (yield from _is_written_anew(context, found))


def refuse_elsewhere(root: TableRoot, table: TableRecord, files: Iterable[DataFile]) -> None:
    """Refuse to plan to bring files back that no symlink manifest can name.

    :raises InvalidInputError: the table keeps symlink manifests, and a file lies in a fast root.
    """
    found = next((file for file in files if is_fast(file.key)), None) if table.symlinks else None
    if found is not None:
        raise InvalidInputError(
            f"What {found.partition or 'the table'} held lies in a fast root, and the table keeps "
            "symlink manifests, which name files in the table's own bucket. Nothing was done.",
            key=found.key,
            remedy=_either(root),
        )


def _either(root: TableRoot) -> str:
    return (
        "Bring back a later state, of which all files lie in the table; or keep no manifests: "
        f"zero-rename catalog manifests {root.url} --off --apply"
    )


def _former(root: TableRoot, table: TableRecord, state: HeadState, version: int) -> PartitionHead:
    former, name = state.head.as_of(version), state.slot.name
    if former is None:
        raise CommitConflictError(
            f"What {name} held at version {version} is not kept any more: it was forgotten while "
            "this job was open. Nothing of this job is visible.",
            key=root.head_key(name),
            remedy=f"{told_versions(state.head)}.",
        )
    if former.version and former.schema_version < table.overwritten:
        raise CommitConflictError(
            f"What {name} held at version {version} has other columns than the table: another job "
            "has overwritten them since this one was planned. Nothing of this job is visible.",
            key=root.head_key(name),
            remedy="Bring back a later state, or undo the job that overwrote the columns by "
            "loading the table with the former ones.",
        )
    return former


def _files_elsewhere(
    context: Context, table: TableRecord, former: Sequence[HeadState]
) -> Step[list[DataFile]]:
    """The files of former states that lie in a fast root."""
    if table.data_root is None and not table.former_roots:
        return []
    named = yield from files_of_heads(context, former)
    return [file for files in named.files for file in undamaged(files) if is_fast(file.key)]


def _is_written_anew(context: Context, found: FoundTable) -> Step[bool]:
    """Whether the record was written again as it is, by another ETag; ``False``: look again.

    :raises StoreUnreachableError: the store did not say; nothing is decided.
    """
    outcome = yield from change_table(context, found)
    if isinstance(outcome, Uncertain):
        key = context.root.table_key
        raise (yield from not_confirmed(context, key, "table.json", outcome))
    return isinstance(outcome, FoundTable)
