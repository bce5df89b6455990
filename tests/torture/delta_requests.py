"""A process killed at each request of what it does to a Delta table, before it and after it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from torture.each_request import APPEND, COLUMNS, REPLACE, Attack, Verb, merge, table_of, write
from torture.inspection import left_in_delta, rows_of
from torture.proxy import Seen, Trap, When

from zero_rename.committer import OnRepeat
from zero_rename.tables import DeltaTable

_ENTRY = re.compile(r"/_delta_log/\d{20}\.json$")
_KEY = "a run"


def commits(seen: Seen) -> bool:
    """Whether a request is the one by which a job of a Delta table is committed."""
    return seen.operation == "PutObject" and _ENTRY.search(seen.key) is not None


def _last_job(table: DeltaTable) -> str:
    return next(it.job for it in table.history() if it.job is not None)


def _leave_unpublished(table: DeltaTable) -> None:
    with table.job(mode="append", publish=False) as job:
        job.write(table_of(APPEND))


def _publish(table: DeltaTable) -> None:
    # Who is told again finds that it is done.
    for job in table.unpublished():
        table.publish(job.job)


def _append_first(table: DeltaTable) -> None:
    write("append", {1: [50], 2: [60]}, idempotency_key=_KEY)(table)


_APPENDED = {1: [3, 4, 5], 2: [2, 6]}
_REPLACED = {1: [7], 2: [2], 3: [9]}

VERBS: dict[str, Verb] = {
    "append": Verb(write("append", APPEND), _APPENDED),
    "append, tried again": Verb(
        write("append", APPEND, idempotency_key=_KEY), _APPENDED, again=True
    ),
    "load in the place of the run's rows": Verb(
        write("append", APPEND, idempotency_key=_KEY, on_repeat=OnRepeat.REPLACE_OWN),
        _APPENDED,
        again=True,
        prepare=_append_first,
        now={1: [3, 4, 50], 2: [2, 60]},
    ),
    "replace": Verb(write("replace", REPLACE), _REPLACED),
    "merge": Verb(merge, {1: [3, 4], 2: [2, 8]}, (3,)),
    "delete": Verb(lambda table: table.delete([("id", "in", [2, 3])]), {1: [4]}),
    "compact": Verb(lambda table: table.compact(apply=True)),
    "undo": Verb(
        lambda table: table.undo(_last_job(table), apply=True),
        prepare=write("replace", REPLACE),
        now=_REPLACED,
    ),
    "restore": Verb(
        lambda table: table.restore(1, apply=True), prepare=write("replace", REPLACE), now=_REPLACED
    ),
    "restore of a partition": Verb(
        lambda table: table.restore(1, ["day=1"], apply=True),
        {1: [3, 4], 2: [2], 3: [9]},
        prepare=write("replace", REPLACE),
        now=_REPLACED,
    ),
    "publish": Verb(_publish, _APPENDED, again=True, prepare=_leave_unpublished),
    "checkpoint of the log": Verb(lambda table: table.checkpoint_log(), upkeep=True),
    "recover": Verb(lambda table: table.recover(0.0), died=("replace", When.AFTER), upkeep=True),
    "purge": Verb(lambda table: table.purge(apply=True), died=("append", When.BEFORE), upkeep=True),
}


class DeltaAttack(Attack):
    """The kill of one who does a verb to a Delta table of its own."""

    verbs: ClassVar[Mapping[str, Verb]] = VERBS

    @staticmethod
    def at_decision(when: When) -> Trap:
        """The trap at the request by which a job is committed."""
        return Trap(lambda _, seen: commits(seen), when, lambda: None)

    @staticmethod
    def open(url: str, client: Any = None) -> DeltaTable:
        """The table, as a process has it."""
        return DeltaTable(url, client)

    def check(self, reads_first: bool) -> bool:
        """See that another process settles the table; whether the verb had changed it.

        :param reads_first: somebody reads the table before it is recovered.
        :raises AssertionError: it holds neither what it held nor what it was to hold, or something
            is left.
        """
        table, verb = self._table, self._verb
        seen = self._rows() if reads_first else None
        self._tells("recover", "--patience", "0", "--apply")
        assert not [it for it in table.open_jobs() if not it.unpublished], "a job is open"
        if verb.again:
            seen = None
            verb.act(table)
        changed = bool(self._decided() - self._jobs)
        days, ids = (verb.after, verb.changed) if changed else (verb.before, ())
        expected = rows_of(table_of(days, ids), COLUMNS)
        assert seen in (None, expected), f"before recovery it was {seen}, not {expected}"
        self._tells("purge", "--apply")
        found = self._rows()
        assert found == expected, f"it holds {found}, not {expected}"
        assert not table.verify(), table.verify()
        left = left_in_delta(table, self._client)
        assert not left, left
        return changed

    def _rows(self) -> Any:
        return rows_of(self._table.scan(columns=COLUMNS).to_arrow(), COLUMNS)

    def _decided(self) -> set[str]:
        # A fence, and what a purge forgets, change no row of a state.
        return {
            it.job
            for it in self._table.history()
            if it.job is not None and it.operation not in ("FENCE", "FORGET")
        }
