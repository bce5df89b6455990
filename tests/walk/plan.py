"""Plans of walks: which operations, with what going wrong at which request, made of one integer."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from support.memory_store import Behaviour

DIRECTORIES, DELTA = "directory", "delta"
#: A destination of Hadoop's committers, whose walks have plans of their own.
HADOOP = "hadoop"
DAYS = (1, 2, 3)
KEYS = ("run-a", "run-b")
#: Columns besides ``id`` and the partition's; a table begins with the first.
COLUMNS = ("n", "c1", "c2", "c3")

#: What may become of a request. *Lost*: applied, and the answer lost; *dropped*: not applied, and
#: no answer; *late*: no answer, and applied some requests later; *busy*: a 409; *twice*: applied,
#: and answered as a second one would be; *denied*: a right is missing. The process dies before the
#: request, after it, or with it on its way; or somebody presses Ctrl-C.
TROUBLES = ("lost", "dropped", "late", "busy", "twice", "denied")
CRASHES = ("dies before", "dies after", "dies with it on its way")
INTERRUPTS = ("Ctrl-C before", "Ctrl-C after")


@dataclass(frozen=True)
class Trouble:
    """What becomes of an operation's requests from the ``at``-th on, ``lasts`` of them.

    :param writes: from the ``at``-th on that changes what lies in the store.
    """

    at: int
    kind: str
    lasts: int = 1
    writes: bool = False

    def __str__(self) -> str:
        of = "write" if self.writes else "request"
        return f"{self.kind} at {of} {self.at}" + (f" x{self.lasts}" if self.lasts > 1 else "")


@dataclass(frozen=True)
class Beside:
    """An operation of another process, right before this one's ``at``-th request.

    :param after_write: right after its ``at``-th write instead, before the answer is made use of.
    """

    at: int
    operation: Operation
    after_write: bool = False

    def __str__(self) -> str:
        where = "after write" if self.after_write else "before request"
        return f"{where} {self.at}: [{self.operation}]"


@dataclass(frozen=True)
class Operation:
    """One call of the public interface.

    :param number: its own, which names its rows and jobs: whatever else is left out, they stay.
    :param process: which process calls.
    :param wait: seconds that pass before it.
    :param days: partitions that it is about.
    :param choice: picks among what there is: a job to undo, an open job to commit.
    :param options: more words, by name.
    :param beside: what other processes do meanwhile.
    :param look: whether somebody reads the table afterwards.
    """

    number: int
    verb: str
    process: int = 0
    wait: float = 0.0
    days: tuple[int, ...] = ()
    choice: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    troubles: tuple[Trouble, ...] = ()
    beside: tuple[Beside, ...] = ()
    look: bool = False

    @property
    def is_undisturbed(self) -> bool:
        return not self.troubles and not self.beside

    def __str__(self) -> str:
        words = [f"{name}={value!r}" for name, value in self.options.items()]
        words += [f"days={list(self.days)}"] if self.days else []
        words += [f"choice={self.choice}"] if self.choice else []
        text = f"{self.number} {self.verb}({', '.join(words)}) by {self.process}"
        text += f" after {self.wait:g} s" if self.wait else ""
        return text + "".join(f"; {it}" for it in (*self.troubles, *self.beside))


@dataclass(frozen=True)
class Plan:
    """A walk.

    :param older: whether the directory had files before, of these days.
    :param small: whether records are folded, divided and indexed from a few entries on; of a
        Delta table: whether checkpoints are written after a few, and few files are too many.
    :param layout: of the table.
    """

    seed: int
    partitioned: bool
    older: tuple[int, ...]
    small: bool
    behaviour: Behaviour
    operations: tuple[Operation, ...]
    layout: str = DIRECTORIES

    @property
    def fast(self) -> bool:
        """Whether a Delta table's files lie in a data root first."""
        return self.layout == DELTA and self.seed % 4 == 1

    def __str__(self) -> str:
        of = "partitioned" if self.partitioned else "not partitioned"
        older = f", files of {list(self.older)} from before" if self.older else ""
        small = ", small records" if self.small else ""
        lines = [f"seed {self.seed}, {self.layout}: {of}{older}{small}, {self.behaviour}"]
        return "\n".join([*lines, *(f"  {it}" for it in self.operations)])


#: Of verbs of loads that give way to those of newer runs, and of those of runs that come late, and
#: do not.
BY_RANK, LATE = " by rank", " late"
#: How often each verb is drawn.
_WRITES = {"append": 16, "replace": 9, "replace named": 4, "replace table": 3, "fail if exists": 2}
_OTHERS = {
    "evolve": 4,
    "overwrite schema": 2,
    "read, modify, write": 6,
    "open": 5,
    "commit": 7,
    "abort": 1,
    "compact": 6,
    "gc": 8,
    "index": 3,
    "adopt": 3,
    "recover": 5,
    "settle": 1,
    "purge": 4,
    "resolve": 4,
    "undo": 5,
    "read": 8,
    "look after": 3,
    "heartbeat": 1,
    "merge": 7,
    "update": 2,
    "delete": 4,
}
#: In walks about runs that give way to newer ones.
_BY_RANK = {f"append{BY_RANK}": 5, f"replace{BY_RANK}": 6, f"replace named{BY_RANK}": 3}
#: In walks about conflicts of runs.
_SETTLING = {"settle conflict": 25, f"replace{LATE}": 35}
#: In walks about runs that are made again.
_AGAIN = {"make again": 12}
#: In walks about a writer without conditions.
_CARELESS = {"write over": 14, "repair": 10}
#: In walks about another engine's VACUUM.
_SWEPT = {"vacuum elsewhere": 20}
_OF_DELTA = {
    "evolve": 4,
    "overwrite schema": 2,
    "read, modify, write": 6,
    "open": 5,
    "commit": 7,
    "abort": 1,
    "hold back": 4,
    "publish": 6,
    "throw away": 1,
    "compact": 6,
    "write checkpoint": 4,
    "recover": 5,
    "settle": 1,
    "purge": 4,
    "append elsewhere": 2,
    "compact elsewhere": 3,
    "delete elsewhere": 2,
    "clean the log": 2,
    "copy": 3,
    "move": 1,
    "restore": 3,
    "restore some": 3,
    "undo job": 5,
    "read": 8,
    "read the past": 3,
    "look after": 3,
    "merge": 7,
    "update": 2,
    "delete": 4,
}


@dataclass(frozen=True)
class _Verbs:
    """What walks of a layout draw from.

    :param every: how often each verb is drawn.
    :param rewrites: what comes beside others more often than not.
    :param again: verbs of walks about runs that are made again.
    :param by_rank: verbs of walks about runs that give way to newer ones.
    :param settling: verbs of walks about conflicts of runs.
    :param careless: verbs of walks about writers without conditions.
    :param swept: verbs of walks in which others delete files that nobody names.
    """

    every: Mapping[str, int]
    rewrites: tuple[str, ...]
    again: Mapping[str, int] = field(default_factory=dict)
    by_rank: Mapping[str, int] = field(default_factory=dict)
    settling: Mapping[str, int] = field(default_factory=dict)
    careless: Mapping[str, int] = field(default_factory=dict)
    swept: Mapping[str, int] = field(default_factory=dict)


_VERBS = {
    DIRECTORIES: _Verbs(
        {**_WRITES, **_OTHERS},
        (
            *("append", "replace", "read, modify, write", "compact", "undo", "replace table"),
            *("gc", "purge", "merge", "delete"),
        ),
        _AGAIN,
        _BY_RANK,
        _SETTLING,
    ),
    DELTA: _Verbs(
        {**_WRITES, **_OF_DELTA},
        (
            *("append", "replace", "read, modify, write", "compact", "undo job", "replace table"),
            *("write checkpoint", "purge", "merge", "delete", "publish", "compact elsewhere"),
            *("copy", "append elsewhere"),
        ),
        _AGAIN,
        _BY_RANK,
        _SETTLING,
        _CARELESS,
        _SWEPT,
    ),
}
#: How a walk begins: mostly there is a table soon.
_BEGINNINGS: tuple[tuple[str, ...], ...] = (
    ("append",),
    (),
    ("open", "open", "commit", "commit"),
    ("evolve", "replace"),
)
_WAITS = (0.0, 0.0, 1.0, 1.0, 5.0, 40.0, 700.0, 90_000.0, 900_000.0)


def make_plan(seed: int, verbs: Collection[str] = (), layout: str = DIRECTORIES) -> Plan:
    """The walk of a seed; always the same.

    Each is about some verbs and days only, so that what they do to each other comes up often.

    :param verbs: that it is about; none: the seed's own.
    """
    draw = _Draw(seed, verbs, _VERBS[layout])
    chance = draw.chance
    older = tuple(day for day in DAYS if chance.random() < 0.6) if chance.random() < 0.3 else ()
    if layout == DELTA:
        older = ()  # A table of directories that is to become one is adopted by a job of its own.
    behaviour = Behaviour(
        complete_again=chance.choice(("no_such_upload", "repeats", "resurrect")),
        conditional_delete=chance.random() < 0.7,
        lists_uploads=chance.random() < 0.8,
        page=chance.choice((3, 1000, 1000)),
    )
    small, partitioned = chance.random() < 0.6, chance.random() < 0.75
    begins = chance.choices(_BEGINNINGS, (6, 2, 1, 1))[0]
    operations = [draw.operation(verb) for verb in begins]
    for _ in range(chance.randint(5, 22)):
        made = draw.operation()
        operations.append(made)
        if made.troubles and "idempotency_key" in made.options and chance.random() < 0.6:
            operations.append(draw.again(made))
    return Plan(seed, partitioned, older, small, behaviour, tuple(operations), layout)


class _Draw:
    """Chance, and what this walk is about."""

    def __init__(self, seed: int, verbs: Collection[str], pool: _Verbs) -> None:
        self.chance = chance = random.Random(seed)
        self._numbers = count(1)
        share = chance.choice((0.3, 0.6, 1.0))
        self._verbs: dict[str, int] = {
            verb: often
            for verb, often in pool.every.items()
            if verb in ("append", "replace", "commit") or chance.random() < share
        }
        if not seed % 4:
            self._verbs |= pool.again
        if not seed % 3:
            self._verbs |= pool.by_rank
        if seed % 5 == 2:
            self._verbs |= pool.settling
        if seed % 7 == 5:
            self._verbs |= pool.careless
        if seed % 11 == 7:
            self._verbs |= pool.swept
        if verbs:
            self._verbs = dict.fromkeys(verbs, 1)
        self._rewrites = pool.rewrites
        self._days = tuple(sorted(chance.sample(DAYS, chance.choice((1, 2, 3)))))
        self._calm = chance.choice((0.4, 0.7, 0.9))
        self._alone = chance.choice((0.4, 0.7, 0.95))
        self._keys = chance.choice((0.1, 0.4, 0.8))

    def operation(self, verb: str = "", depth: int = 0) -> Operation:
        chance = self.chance
        verb = verb or chance.choices(list(self._verbs), list(self._verbs.values()))[0]
        days = chance.sample(self._days, chance.randint(1, len(self._days)))
        made = Operation(
            next(self._numbers),
            verb,
            process=chance.randrange(2) + 2 * depth,
            wait=chance.choice((0.0, 0.0, 1.0)) if depth else chance.choice(_WAITS),
            days=tuple(sorted(days)),
            choice=chance.randrange(4),
            options=_options(chance, verb, self._keys),
            look=not depth and chance.random() < 0.4,
        )
        troubles = () if chance.random() < self._calm else _troubles(chance)
        if depth or chance.random() < self._alone:
            return replace(made, troubles=troubles)
        beside = [self._beside() for _ in range(chance.choice((1, 1, 1, 2)))]
        if chance.random() < 0.35:
            # It writes, somebody else comes, and it never hears what became of its write.
            at, verb = chance.randint(1, 12), chance.choice(("append", "append", "replace"))
            other = replace(self.operation(verb, 1), days=self._days, troubles=())
            lost = Trouble(at, "lost", writes=True)
            return replace(made, troubles=(lost,), beside=(Beside(at, other, after_write=True),))
        return replace(made, troubles=troubles, beside=tuple(beside))

    def again(self, failed: Operation) -> Operation:
        """The same run's next try, as a scheduler has it."""
        wait = self.chance.choice(_WAITS)
        return replace(failed, number=next(self._numbers), troubles=(), beside=(), wait=wait)

    def _beside(self) -> Beside:
        """More often than not somebody who changes something."""
        chance = self.chance
        verb = "" if chance.random() < 0.4 else chance.choice(self._rewrites)
        after_write = chance.random() < 0.5
        at = chance.randint(1, 12) if after_write else chance.randint(1, chance.choice((15, 50)))
        return Beside(at, self.operation(verb, 1), after_write)


def _options(chance: random.Random, verb: str, keys: float) -> dict[str, Any]:
    options: dict[str, Any] = {}
    load = verb.removesuffix(BY_RANK).removesuffix(LATE)
    if load in _WRITES or verb in ("evolve", "open", "merge", "delete", "hold back"):
        if chance.random() < 0.25:
            options["on_conflict"] = "last_wins"
        if chance.random() < keys:
            options["idempotency_key"] = chance.choice(KEYS)
            options["on_repeat"] = chance.choices(("skip", "replace_own", "append"), (4, 5, 1))[0]
        if chance.random() < 0.15:
            options["success_markers"] = chance.choice(("table", "none"))
        if chance.random() < 0.4:
            options["rows_per_file"] = 1
        if chance.random() < 0.1:
            options["empty"] = True
    if verb != load:
        options["periods"] = chance.choice((-1, 0, 1, 1))
    if verb.endswith(BY_RANK):
        options["on_conflict"] = "newest_run"
        options["on_superseded"] = chance.choice(("fail", "skip"))
    if verb == "make again":
        options["idempotency_key"] = chance.choice(KEYS)
        options["clear"] = f"{chance.randrange(10**6):06d}"
        options["by hand"] = chance.random() < 0.3
        options["ends"] = chance.random() < 0.5
    if verb in ("open", "hold back"):
        options["like"] = chance.choices(["evolve", *_WRITES], [12, *_WRITES.values()])[0]
        options["loser"] = chance.random() < 0.3
    if verb in ("merge", "update", "delete"):
        options["known"] = chance.choice((0, 1, 1, 2, 3))
        options["same"] = chance.random() < 0.2
        options["moves"] = chance.random() < 0.3
        options["gone"] = chance.random() < 0.3
        options["across"] = chance.random() < 0.4
        options["when_matched"] = chance.choice(("update", "update", "update", "ignore"))
        options["when_not_matched"] = chance.choice(("insert", "insert", "ignore"))
        options["evolves"] = verb == "merge" and chance.random() < 0.3
        options["attempts"] = chance.choice((1, 3))
    if verb in ("evolve", "overwrite schema", "open", "hold back", "merge"):
        options["columns"] = tuple(c for c in COLUMNS if chance.random() < 0.5)
        options["wide"] = chance.random() < 0.3
    if verb in ("gc", "purge", "recover"):
        options["age"] = chance.choice((0.0, 60.0, 100_000.0, None))
    if verb == "settle conflict":
        options["run"] = chance.choice((None, 0, 0, 1, 1, 2))
    if verb in ("resolve", "undo"):
        options["discard"] = chance.random() < 0.3
        options["keep"] = chance.choice(("newest", "all", "one", "some"))
    if verb in ("restore", "restore some", "read the past"):
        options["back"] = chance.choice((1, 1, 2, 3, 5))
    if verb in ("compact", "read", "read, modify, write", "read the past"):
        options["all"] = chance.random() < 0.5
    if verb == "read, modify, write" and chance.random() < 0.2:
        options["on_conflict"] = "last_wins"
    return options


def _troubles(chance: random.Random) -> tuple[Trouble, ...]:
    drawn = chance.random()
    writes = chance.random() < 0.5
    at = chance.randint(1, 14) if writes else chance.randint(1, chance.choice((15, 40, 90)))
    if drawn < 0.35:
        return (Trouble(at, chance.choice(CRASHES), 1, writes),)
    if drawn < 0.42:
        return (Trouble(at, chance.choice(INTERRUPTS)),)
    if drawn < 0.5:
        return (Trouble(at, chance.choice(("dropped", "denied", "lost")), 200, writes),)
    count = chance.choice((1, 1, 2, 3))
    some = []
    for _ in range(count):
        writes = chance.random() < 0.5
        at = chance.randint(1, 14 if writes else 60)
        lasts = chance.choice((1, 1, 2, 6))
        some.append(Trouble(at, chance.choice(TROUBLES), lasts, writes))
    if chance.random() < 0.2:
        some.append(Trouble(at, chance.choice(CRASHES), 1, writes))
    return tuple(some)
