"""What must hold of a table's columns at every request: they are those that the table began with
and those of committed jobs' files since they were last overwritten, no more and no fewer; and each
file has them, but for those that are on record as later ones."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
from simulation.invariants import ROOT, Violation, decision_of, is_committed, jobs
from simulation.sim_store import Store

from zero_rename.committer.commit.snapshot import Snapshot
from zero_rename.committer.format.records.table_record import TableRecord
from zero_rename.committer.format.schema.compatibility import is_later

#: What the files of a job say that overwrites the columns.
OVERWRITES = "overwrites"


def check_columns(before: Store, after: Store) -> None:
    """The table's columns after a request that wrote ``table.json`` or a decision: those before it
    and those of a job that is committed by it, or its alone where it overwrites them; and the
    reverse, that each file has them, or that they are on record as later ones.

    :raises Violation: a committed job's column is none of the table's, the table has one that
        no committed job brought, or a file lacks one that all files should have.
    """
    if before.objects is after.objects or ROOT.table_key not in after.objects:
        return
    prefix = ROOT.decisions_prefix
    new = [key for key in after.objects.keys() - before.objects.keys() if key.startswith(prefix)]
    if not new and before.objects.get(ROOT.table_key) is after.objects[ROOT.table_key]:
        return
    expected = set(_columns(before))
    for key in new:
        job = key.removeprefix(prefix).removesuffix(".json")
        notes = _notes(after, job) if key.endswith(".json") else []
        if any(OVERWRITES in note.split("|") for note in notes):
            expected = set()
        expected.update(*map(columns_in, notes))
    shown = set(_columns(after))
    if expected - shown:
        raise Violation("completeness", f"the columns {sorted(expected - shown)} are lost")
    if shown - expected:
        raise Violation("exclusivity", f"the columns {sorted(shown - expected)} are nobody's")
    _check_files(after)


def _check_files(store: Store) -> None:
    """Each file of the columns that there are now has all but those that are on record as later."""
    record = _counted(store)
    for job in jobs(store) if record is not None else ():
        decision = decision_of(store, job)
        if record is None or decision is None or decision.schema_version < record.overwritten:
            continue
        for file in decision.files:
            _check_file(file.key, file.checksum, record.schema)


def _check_file(key: str, note: str, schema: pa.Schema) -> None:
    lacking = [f.name for f in schema if f.name not in columns_in(note) and not is_later(f)]
    if note and lacking:
        raise Violation("consistency", f"{key} lacks {lacking}, and no record says so")


def check_read_columns(snapshot: Snapshot) -> None:
    """A reader's schema has the columns of all its files, and they have its.

    :raises Violation: it has not.
    """
    for file in snapshot.files:
        missing = columns_in(file.checksum) - set(snapshot.schema.names)
        if missing:
            raise Violation("consistency", f"{sorted(missing)} of {file.key} were not read")
        _check_file(file.key, file.checksum, snapshot.schema)


def columns_in(note: str) -> set[str]:
    """The columns of a file, from what it carries in the place of its checksum; none of a file
    that nobody of ours wrote."""
    return set(note.rpartition("|")[2].split())


def _notes(store: Store, job: str) -> list[str]:
    decision = decision_of(store, job)
    return [] if decision is None else [file.checksum for file in decision.files]


def _columns(store: Store) -> list[str]:
    record = _counted(store)
    return [] if record is None else record.schema.names


def _counted(store: Store) -> TableRecord | None:
    """The table as it is by the decisions that there are; ``None`` before its first job's."""
    if ROOT.table_key not in store.objects:
        return None
    record = _record(store.objects[ROOT.table_key].body)
    if record.first is not None and not is_committed(store, record.first):
        return None
    if record.evolution is not None and is_committed(store, record.evolution.job):
        record = record.evolved()
    return record


@lru_cache(maxsize=100_000)
def _record(body: bytes) -> TableRecord:
    return TableRecord.decode(body, ROOT.table_key)
