"""Changes of rows, as the oracle has them: merges, updates and deletions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from walk.oracle import Effect, Oracle, Row, State, Violation, rows_of


@dataclass(frozen=True)
class Given:
    """A row that is merged, by its id.

    :param place: its partition, in which it matches, unless it is looked for in all; ``""``: it
        matches in each that is looked at.
    :param had: the columns that it brings.
    :param gone: whether the row that it matches is deleted.
    """

    place: str
    had: frozenset[tuple[str, int]] = frozenset()
    gone: bool = False


@dataclass
class Change(Effect):
    """Rows in the place of those that have their ids, and deletions.

    :param given: by id.
    :param looked: the partitions in which ids are looked for; ``None``: all.
    :param updates: whether a match changes; ``inserts``: whether a row without a match is added.
    :param serial: whether nothing may change beside it, in partitions that it leaves as well.
    :param foreign: columns of files from before, where it makes the table of them.
    :param begun: how many decisions there were when it was asked for.
    :param counts: rows inserted, updated and deleted, once it is decided.
    """

    given: Mapping[int, Given] = field(default_factory=dict)
    looked: Collection[str] | None = None
    updates: bool = True
    inserts: bool = True
    serial: bool = False
    idempotency_key: str | None = None
    on_repeat: str = "skip"
    columns: dict[str, str] = field(default_factory=dict)
    merges: bool = False
    foreign: dict[str, str] = field(default_factory=dict)
    begun: int = 0
    counts: tuple[int, int, int] = (0, 0, 0)

    def apply(self, oracle: Oracle, state: State) -> State:
        oracle.run_before(self.job, self.idempotency_key, self.on_repeat)
        after = self._after(oracle, state)
        makes = oracle.columns is None
        oracle.bring({**self.foreign, **self.columns} if makes else self.columns, self.merges)
        oracle.ran(self.idempotency_key, self.job)
        for name in self.partitions:
            state = oracle.rewritten(state, name, self.job, after[name])
            oracle.again[self.job, name] |= {self.job}
        return state

    def _after(self, oracle: Oracle, state: State) -> Mapping[str, tuple[Row, ...]]:
        """The rows of the partitions that it changes.

        :raises Violation: there was no one state, the present one in what it writes, by which it
            changes these partitions and no others.
        """
        named = {*self.partitions}
        for before in reversed(oracle.states[self.begun :]):
            same = {*before, *state} if self.serial else named
            if any(_counted(before, name) != _counted(state, name) for name in same):
                continue
            after, counts = self.of(before)
            if {name for name in after if Counter(after[name]) != _counted(before, name)} == named:
                self.counts = counts
                return after
        raise Violation(f"{self.job} changes {sorted(named)}, as by no state that there was")

    def of(self, state: State) -> tuple[dict[str, tuple[Row, ...]], tuple[int, int, int]]:
        """What partitions hold after it, by the state before; and its counts."""
        after: dict[str, list[Row]] = {}
        matched: set[int] = set()
        inserted = updated = deleted = 0
        looked = state if self.looked is None else self.looked
        for name in sorted(looked):
            for number, had in rows_of(state, name):
                row, place = (number, had), name
                given = self.given.get(number)
                if given is not None and (self.looked is None or given.place in ("", name)):
                    matched.add(number)
                    if given.gone:
                        deleted += 1
                        continue
                    if self.updates:
                        row = (number, frozenset({**dict(had), **dict(given.had)}.items()))
                        place = given.place
                        updated += (row, place) != ((number, had), name)
                after.setdefault(place, []).append(row)
                after.setdefault(name, [])
            after.setdefault(name, [])
        for number, given in self.given.items():
            if self.inserts and number not in matched and not given.gone:
                inserted += 1
                after.setdefault(given.place, []).append((number, given.had))
        return {name: tuple(rows) for name, rows in after.items()}, (inserted, updated, deleted)


def _counted(state: State, partition: str) -> Counter[Row]:
    return Counter(rows_of(state, partition))
