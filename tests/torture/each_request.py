"""A process killed at each request of what it does, before it and after it: nothing lost, nothing
doubled, nothing left, and the commands tell it."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any, ClassVar
from unittest.mock import patch

import pyarrow as pa
from torture.inspection import left_behind, listed_rows, rows_of, uploads
from torture.proxy import Proxy, Trap, When
from torture.servers import Store
from torture.storms import decides
from torture.writers import Child, enter
from typer.main import get_command

from support.plain_bucket import PlainBucket
from support.waiting import until
from zero_rename import Table
from zero_rename.cli.main import app
from zero_rename.committer.errors import ZeroRenameError

COLUMNS = ["id", "value", "day"]
SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64()), ("day", pa.int32())])
#: Made once: it reads what all commands may be given.
_COMMANDS = get_command(app)
#: What the table holds before each kill, by day.
NOW = {1: [3, 4], 2: [2]}


@dataclass(frozen=True)
class Verb:
    """What is done to the table by the process that is killed.

    :param act: is given the table.
    :param after: what it comes to, by day; ids whose value is another one, too, are in ``changed``.
    :param appends: jobs that append to the first day before.
    :param died: another verb, whose process was killed as it sent its decision, before the store
        had it or after that: what is to be settled.
    :param upkeep: whether it commits no job, and so changes no row.
    :param again: whether it is done once more when the table is recovered.
    :param prepare: is done to the table last before the kill, which then holds ``now``.
    """

    act: Callable[[Any], Any]
    after: Mapping[int, Sequence[int]] = field(default_factory=lambda: NOW)
    changed: tuple[int, ...] = ()
    appends: int = 0
    died: tuple[str, When] | None = None
    again: bool = False
    upkeep: bool = False
    prepare: Callable[[Any], object] = bool
    now: Mapping[int, Sequence[int]] = field(default_factory=lambda: NOW)

    @property
    def before(self) -> Mapping[int, Sequence[int]]:
        """What the table holds when it begins, whoever finishes what another left."""
        if self.died is not None and self.died[1] is When.AFTER:
            return VERBS[self.died[0]].after
        return {**self.now, 1: [*self.now[1], *_appended(self.appends)]}


def _appended(appends: int) -> range:
    return range(100, 100 + appends)


def write(mode: str, days: Mapping[int, Sequence[int]], **words: Any) -> Callable[[Any], None]:
    def act(table: Any) -> None:
        with table.job(mode=mode, **words) as job:
            job.write(table_of(days))

    return act


def merge(table: Any) -> None:
    """Change a row and bring one."""
    table.merge(table_of({1: [3], 2: [8]}, (3,)), ["id"])


APPEND = {1: [5], 2: [6]}
REPLACE = {1: [7], 3: [9]}
#: Appends to a partition, beside two, after which one more folds what its head names.
_FOLDED = 6

VERBS: dict[str, Verb] = {
    "append": Verb(write("append", APPEND), {1: [3, 4, 5], 2: [2, 6]}),
    "append that folds": Verb(
        write("append", APPEND), {1: [3, 4, *_appended(_FOLDED), 5], 2: [2, 6]}, appends=_FOLDED
    ),
    "append, tried again": Verb(
        write("append", APPEND, idempotency_key="a run"), {1: [3, 4, 5], 2: [2, 6]}, again=True
    ),
    "replace": Verb(write("replace", REPLACE), {1: [7], 2: [2], 3: [9]}),
    "merge": Verb(merge, {1: [3, 4], 2: [2, 8]}, (3,)),
    "delete": Verb(lambda table: table.delete([("id", "in", [2, 3])]), {1: [4]}),
    "compact": Verb(lambda table: table.compact(apply=True)),
    "gc": Verb(lambda table: table.gc(0.0, apply=True), upkeep=True),
    "recover": Verb(lambda table: table.recover(0.0), died=("replace", When.AFTER), upkeep=True),
    "purge": Verb(
        lambda table: table.purge(apply=True, patience=0.0),
        died=("append", When.BEFORE),
        upkeep=True,
    ),
}


def table_of(days: Mapping[int, Sequence[int]], changed: Sequence[int] = ()) -> pa.Table:
    rows = [(it, it * 10 + (it in changed), day) for day, ids in days.items() for it in ids]
    return pa.table({name: [row[n] for row in rows] for n, name in enumerate(COLUMNS)}, SCHEMA)


@dataclass
class Kills:
    """What came of the kills at each request of a verb."""

    what: str
    struck: int = 0
    changed: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = f"{self.what:<28}{self.struck:>6} kills{self.changed:>6} of them had changed it"
        return "\n".join([f"{told}; problems {len(self.problems)}", *self.problems])


def kill_at_each(
    store: Store, proxy: Proxy, bucket: str, name: str, attacks: type[Attack] | None = None
) -> Kills:
    """Kill a process at each request of a verb: before it, and in another round after the store
    did it, its answer lost. Each has a table of its own, so that all meet the same.

    :param attacks: on which tables; ``None``: on those of directories.
    """
    kills, client = Kills(name), store.client()
    attacks = attacks or Attack
    for when in (When.BEFORE, When.AFTER):
        for number in itertools.count():
            words = (*name.replace(",", "").split(), when.name.lower(), str(number))
            url = f"s3://{bucket}/{'-'.join(words)}"
            attack = attacks(store, client, proxy, url, name)
            attack.prepare()
            struck = attack.kill(Trap(lambda at, _, n=number: at == n, when, lambda: None), name)
            kills.struck += struck
            try:
                changed = attack.check(reads_first=when is When.AFTER)
                kills.changed += changed and struck
                upkeep = attacks.verbs[name].upkeep
                assert struck or changed or upkeep, "not killed, it changed nothing"
            except (AssertionError, ZeroRenameError) as error:
                where = f"{when.name.lower()} request {number}"
                kills.problems.append(f"  {where}: {type(error).__name__}: {error}"[:500])
            if not struck:
                break
    return kills


class Attack:
    """The kill of one who does a verb, on a table of its own.

    :cvar verbs: what may be done, by name.
    """

    verbs: ClassVar[Mapping[str, Verb]] = VERBS

    def __init__(self, store: Store, client: Any, proxy: Proxy, url: str, name: str) -> None:
        self._store, self._client, self._proxy = store, client, proxy
        self._url, self._name, self._verb = url, name, self.verbs[name]
        self._jobs = set[str]()

    @staticmethod
    def at_decision(when: When) -> Trap:
        """The trap at the request by which a job is decided."""
        return Trap(lambda _, seen: decides(seen), when, lambda: None)

    @staticmethod
    def open(url: str, client: Any = None) -> Any:
        """The table, as a process has it."""
        return Table(url, client)

    @property
    def _table(self) -> Any:
        """As another process has it."""
        return self.open(self._url, self._client)

    def prepare(self) -> None:
        """Let the table hold what it does before a kill."""
        table = self._table
        for days in (
            {1: [3], 2: [2]},
            {1: [4]},
            *({1: [it]} for it in _appended(self._verb.appends)),
        ):
            with table.job(SCHEMA, partition_by=["day"]) as job:
                job.write(table_of(days))
        if self._verb.died is not None:
            name, when = self._verb.died
            assert self.kill(self.at_decision(when), name)
        self._verb.prepare(table)
        self._jobs = self._decided()

    def kill(self, trap: Trap, name: str) -> bool:
        """Kill who does a verb in the trap; ``False``: it was not met."""
        variables = self._store.environment(self._proxy.endpoint)
        struck: list[bool] = []
        started: list[Child] = []

        def strike() -> None:
            struck.append(True)
            until("the process to be known", lambda: started)
            started[0].kill()

        self._proxy.watch(replace(trap, act=strike))
        started += [Child(_act, type(self), self._url, name, variables)]
        answer = started[0].answer()
        started[0].close()
        self._proxy.drain()
        self._proxy.watch()
        assert answer == (None if struck else "done"), f"it was not killed, and said {answer}"
        return bool(struck)

    def check(self, reads_first: bool) -> bool:
        """See that another process settles the table; whether the verb had changed it.

        :param reads_first: somebody reads the table before it is recovered.
        :raises AssertionError: it holds neither what it held nor what it was to hold, or something
            is left, or the commands say something else.
        """
        table, verb = self._table, self._verb
        seen = rows_of(table.to_arrow(columns=COLUMNS), COLUMNS) if reads_first else None
        self._tells("recover", "--patience", "0", "--apply")
        assert self._tells("jobs") == [], "a job is open after recovery"
        if verb.again:
            seen = None
            verb.act(table)
        new = self._decided() - self._jobs
        committed = {job for job in new if table.result(job) is not None}
        changed = bool(committed)
        told = {it["job"]: it["verdict"] for it in self._tells("history", "--most", "100")}
        said = {job for job in new if told[job] == "commit"}
        assert said == committed, f"history says {told}"
        days, ids = (verb.after, verb.changed) if changed else (verb.before, ())
        expected = rows_of(table_of(days, ids), COLUMNS)
        assert seen in (None, expected), f"before recovery it was {seen}, not {expected}"
        self._tells("purge", "--patience", "0", "--apply")
        self._tells("purge", "--patience", "0", "--apply")
        self._require(expected)
        shown = {it["partition"]: it["rows"] for it in self._tells("show")}
        assert {name: rows for name, rows in shown.items() if rows} == {
            f"day={day}": len(held) for day, held in days.items()
        }, f"show says {shown}"
        left = [*left_behind(table, self._client), *uploads(table, self._client)]
        assert not left, left
        return changed

    def _tells(self, command: str, *options: str) -> Any:
        """What a command tells.

        :raises AssertionError: it does not end well.
        """
        arguments = [command, self._url, *options, "--json"]
        told = io.StringIO()
        with patch.dict(os.environ, self._store.environment()), redirect_stdout(told):
            code = _COMMANDS.main(arguments, standalone_mode=False)
        assert not code, f"zero-rename {command} ends with {code}: {told.getvalue()}"
        return json.loads(told.getvalue())

    def _require(self, expected: Counter[Any]) -> None:
        table = self._table
        seen = rows_of(table.to_arrow(columns=COLUMNS), COLUMNS)
        assert seen == expected, f"by heads: {seen}, not {expected}"
        listed = listed_rows(table, self._client, COLUMNS)
        assert listed == expected, f"by listing: {listed}, not {expected}"

    def _keys(self, prefix: str) -> set[str]:
        return {*PlainBucket(self._table.root.bucket, self._client).keys(prefix)}

    def _decided(self) -> set[str]:
        prefix = self._table.root.decisions_prefix
        names = (key.removeprefix(prefix) for key in self._keys(prefix))
        return {name.removesuffix(".json") for name in names if name.startswith("zr1-")}


def _act(
    attacks: type[Attack], url: str, name: str, variables: dict[str, str], told: Connection
) -> None:
    """Runs in the process that is killed."""
    enter(variables)
    try:
        attacks.verbs[name].act(attacks.open(url))
        told.send("done")
    except ZeroRenameError as error:
        told.send(f"{type(error).__name__}: {error}")
    signal.pause()
