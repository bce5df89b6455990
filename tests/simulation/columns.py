"""What must hold of a table's columns at every request: they are those that the table began with
and those of committed jobs' files since they were last overwritten, no more and no fewer."""

from __future__ import annotations

from functools import lru_cache

from simulation.invariants import ROOT, Violation, decision_of
from simulation.sim_store import Store

from zero_rename.committer.protocol.snapshot import Snapshot
from zero_rename.committer.records.table_record import TableRecord

#: What the files of a job say that overwrites the columns.
OVERWRITES = "overwrites"


def check_columns(before: Store, after: Store, start: Store) -> None:
    """The table's columns after a request that wrote ``table.json`` or a decision: those before it
    and those of a job that is committed by it, or its alone where it overwrites them.

    :param start: the store at the beginning, which has a table.
    :raises Violation: a committed job's column is none of the table's, or the table has one that
        no committed job brought.
    """
    if ROOT.table_key not in start.objects or before.objects is after.objects:
        return
    prefix = ROOT.decisions_prefix
    new = [key for key in after.objects.keys() - before.objects.keys() if key.startswith(prefix)]
    if not new and before.objects[ROOT.table_key] is after.objects[ROOT.table_key]:
        return
    expected = set(_columns(before))
    for key in new:
        job = key.removeprefix(prefix).removesuffix(".json")
        decision = decision_of(after, job) if key.endswith(".json") else None
        notes = [file.checksum for file in decision.files] if decision is not None else []
        if any(OVERWRITES in note.split("|") for note in notes):
            expected = set()
        expected.update(*map(columns_in, notes))
    shown = set(_columns(after))
    if expected - shown:
        raise Violation("completeness", f"the columns {sorted(expected - shown)} are lost")
    if shown - expected:
        raise Violation("exclusivity", f"the columns {sorted(shown - expected)} are nobody's")


def check_read_columns(snapshot: Snapshot) -> None:
    """A reader's schema has the columns of all its files.

    :raises Violation: it has not.
    """
    for file in snapshot.files:
        missing = columns_in(file.checksum) - set(snapshot.schema.names)
        if missing:
            raise Violation("consistency", f"{sorted(missing)} of {file.key} were not read")


def columns_in(note: str) -> set[str]:
    """The columns of a file, from what it carries in the place of its checksum; none of a file
    that nobody of ours wrote."""
    return set(note.rpartition("|")[2].split())


def _columns(store: Store) -> list[str]:
    record = _record(store.objects[ROOT.table_key].body)
    if record.evolution is not None:
        decision = decision_of(store, record.evolution.job)
        if decision is not None and decision.is_commit:
            record = record.evolved()
    return record.schema.names


@lru_cache(maxsize=100_000)
def _record(body: bytes) -> TableRecord:
    return TableRecord.decode(body, ROOT.table_key)
