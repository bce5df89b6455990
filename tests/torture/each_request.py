"""A process killed at each request of what it does, on both kinds of table: nothing lost, nothing
doubled, nothing left, and the past as it was."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa
from torture.inspection import left_behind, listed_rows, rows_of, uploads
from torture.proxy import Proxy, Trap, When
from torture.servers import Store
from torture.writers import FORKS, enter, receive, start

from zero_rename import Table
from zero_rename.committer.errors import ZeroRenameError

_COLUMNS = ["id", "value", "day"]
_SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64()), ("day", pa.int32())])
#: What the table holds before each kill, by day.
_NOW = {1: [3, 4], 2: [2]}


@dataclass(frozen=True)
class Verb:
    """What is done to the table by the process that is killed.

    :param act: is given the table, the job that changed it last, and the version of the first day.
    :param after: what it comes to, by day; ids whose value is another one, too, are in ``changed``.
    :param by_heads: whether only a table that is read by heads has it.
    """

    act: Callable[[Table, str, int], Any]
    after: Mapping[int, Sequence[int]] = field(default_factory=lambda: _NOW)
    changed: tuple[int, ...] = ()
    by_heads: bool = False


def _write(mode: str, days: Mapping[int, Sequence[int]]) -> Callable[[Table, str, int], Any]:
    def act(table: Table, *_: object) -> None:
        with table.job(mode=mode) as job:
            job.write(_table(days))

    return act


def _merge(table: Table, *_: object) -> None:
    table.merge(_table({1: [3], 2: [8]}, (3,)), ["id"])


VERBS: dict[str, Verb] = {
    "append": Verb(_write("append", {1: [5], 2: [6]}), {1: [3, 4, 5], 2: [2, 6]}),
    "replace": Verb(_write("replace", {1: [7], 3: [9]}), {1: [7], 2: [2], 3: [9]}),
    "merge": Verb(_merge, {1: [3, 4], 2: [2, 8]}, (3,)),
    "delete": Verb(lambda table, *_: table.delete([("id", "in", [2, 3])]), {1: [4]}),
    "compact": Verb(lambda table, *_: table.compact(apply=True)),
    "gc": Verb(lambda table, *_: table.gc(0.0, apply=True)),
    "purge": Verb(lambda table, *_: table.purge(apply=True, patience=0.0)),
    "undo": Verb(
        lambda table, job, _: table.undo(job, apply=True), {1: [3], 2: [2]}, by_heads=True
    ),
    "restore": Verb(
        lambda table, _, version: table.restore(version - 1, ["day=1"], apply=True),
        {1: [3], 2: [2]},
        by_heads=True,
    ),
    "purge, keep 0": Verb(
        lambda table, *_: table.purge(apply=True, patience=0.0, keep=0), by_heads=True
    ),
}

#: Those that commit no job.
_UPKEEP = ("gc", "purge", "purge, keep 0")


def _table(days: Mapping[int, Sequence[int]], changed: Sequence[int] = ()) -> pa.Table:
    rows = [(it, it * 10 + (it in changed), day) for day, ids in days.items() for it in ids]
    return pa.table({name: [row[n] for row in rows] for n, name in enumerate(_COLUMNS)}, _SCHEMA)


@dataclass
class Kills:
    """What came of the kills at each request of a verb, on one kind of table."""

    what: str
    struck: int = 0
    changed: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = f"{self.what:<28}{self.struck:>6} kills{self.changed:>6} of them had changed it"
        return "\n".join([f"{told}; problems {len(self.problems)}", *self.problems])


def kill_at_each(
    store: Store, proxy: Proxy, bucket: str, name: str, layout: str, seed: int
) -> Kills:
    """Kill a process at each request of a verb: before it, or after it with its answer lost.

    :param seed: an even one begins with the former, an odd one with the latter; they take turns.
    """
    url = f"s3://{bucket}/{name.replace(', ', '-').replace(' ', '-')}-{layout}"
    attack = _Attack(store, proxy, url, name, layout)
    kills = Kills(f"{name}, {layout}")
    number, struck = 0, True
    while struck:
        when = (When.BEFORE, When.AFTER)[(number + seed) % 2]
        attack.prepare()
        struck = attack.kill(number, when)
        kills.struck += struck
        try:
            changed = attack.check()
            kills.changed += changed and struck
            assert struck or changed or name in _UPKEEP, "nobody killed it, and it changed nothing"
        except (AssertionError, ZeroRenameError) as error:
            where = f"{when.name.lower()} request {number}"
            kills.problems.append(f"  {where}: {type(error).__name__}: {error}"[:500])
        number += 1
    return kills


class _Attack:
    """Kills of one verb, on one table."""

    def __init__(self, store: Store, proxy: Proxy, url: str, name: str, layout: str) -> None:
        self._store, self._proxy, self._url, self._name = store, proxy, url, name
        self._verb, self._layout = VERBS[name], layout
        self._client = store.client()
        self._job, self._jobs, self._versions = "", set[str](), dict[str, int]()

    @property
    def _table(self) -> Table:
        """As another process has it."""
        return Table(self._url, client=self._client)

    def prepare(self) -> None:
        """Let the table hold what it does before a kill: a replace, and an append to the first
        day."""
        table = self._table
        words: dict[str, Any] = {"partition_by": ["day"], "readers": self._layout}
        with table.job(_SCHEMA, mode="replace", replace_table=True, **words) as job:
            job.write(_table({1: [3], 2: [2]}))
        with table.job(_SCHEMA, **words) as job:
            job.write(_table({1: [4]}))
        self._job, self._jobs = str(job.job), self._decided()
        self._versions = dict(table.snapshot().epochs)

    def kill(self, number: int, when: When) -> bool:
        """Kill who changes the table at a request of that number; ``False``: there was none."""
        mine, theirs = FORKS.Pipe(duplex=False)
        variables = self._store.environment(self._proxy.endpoint)
        arguments = (self._url, self._name, self._job, self._versions["day=1"], variables, theirs)
        process = FORKS.Process(target=_act, args=arguments)
        struck: list[int] = []

        def strike() -> None:
            struck.append(number)
            process.kill()

        self._proxy.watch(Trap(lambda at, _: at == number, when, strike))
        start(process)
        theirs.close()
        answer = receive(mine, process)
        process.kill()
        process.join()
        mine.close()
        self._proxy.drain()
        self._proxy.watch()
        assert answer == (None if struck else "done"), f"it was not killed, and said {answer}"
        return bool(struck)

    def check(self) -> bool:
        """See that another process settles the table; whether the verb had changed it.

        :raises AssertionError: it holds neither what it held nor what it was to hold, or something
            is left.
        """
        table = self._table
        failed = [it for it in table.recover(0.0) if str(it.outcome) in ("failed", "left")]
        assert not failed, failed
        changed = any(table.result(job) is not None for job in self._decided() - self._jobs)
        by_heads = self._layout == "heads"
        if by_heads and self._name != "purge, keep 0":
            found = table.scan(["day=1"], as_of=self._versions["day=1"] - 1).to_arrow()
            assert found["id"].to_pylist() == [3], f"the version before has {found['id']}"
        table.purge(apply=True, patience=0.0, keep=0 if by_heads else None)
        self._require(self._verb.after if changed else _NOW, self._verb.changed if changed else ())
        left = [*left_behind(table, self._client), *uploads(table, self._client)]
        assert not left, left
        there = self._keys(table.root.data_prefix)
        assert not by_heads or there == {file.key for file in table.files()}, "files of nobody"
        return changed

    def _require(self, days: Mapping[int, Sequence[int]], changed: Sequence[int]) -> None:
        table = self._table
        expected = rows_of(_table(days, changed), _COLUMNS)
        seen = rows_of(table.to_arrow(columns=_COLUMNS), _COLUMNS)
        assert seen == expected, f"by heads: {seen}, not {expected}"
        listed = listed_rows(table, self._client, _COLUMNS)
        wanted = expected if self._layout == "listing" else rows_of(_table({}), _COLUMNS)
        assert listed == wanted, f"by listing: {listed}, not {wanted}"

    def _keys(self, prefix: str) -> set[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._table.root.bucket, Prefix=prefix
        )
        return {entry["Key"] for page in pages for entry in page.get("Contents", ())}

    def _decided(self) -> set[str]:
        prefix = self._table.root.decisions_prefix
        names = (key.removeprefix(prefix) for key in self._keys(prefix))
        return {name.removesuffix(".json") for name in names if name.startswith("zr1-")}


def _act(
    url: str, name: str, job: str, version: int, variables: dict[str, str], told: Connection
) -> None:
    """Runs in the process that is killed."""
    enter(variables)
    try:
        VERBS[name].act(Table(url), job, version)
        told.send("done")
    except ZeroRenameError as error:
        told.send(f"{type(error).__name__}: {error}")
    signal.pause()
