"""Jobs whose rows tables hold, each as a node: whether its inputs are as they were, and its run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..committer.format.job_spec import NOBODY, Mode, Owner
from ..committer.format.records.inputs import Inputs, PartitionRead, TableRead, content_of
from ..committer.overview.job_record import JobRecord
from .tables import CannotTellError, KnownTables, Place, TableNow

#: The content of a partition without files.
_EMPTY = content_of(())


@dataclass(frozen=True)
class JobRun:
    """What there is to run again.

    :param seconds: from the job's opening to its decision; ``None``: not on record.
    :param mode: what became of the rows that were there.
    :param by_key: whether it matched rows by key, as a merge does.
    :param code_versions: of the programs that made the rows, as they called them; ``""`` for rows
        of which it is not known.
    """

    owner: Owner = NOBODY
    idempotency_key: str | None = None
    seconds: float | None = None
    mode: Mode | None = None
    by_key: bool = False
    code_versions: tuple[str, ...] = ()

    def outdated(self, now: str) -> str:
        """Why rows of the run are another code version's than the present one; empty: they are
        not."""
        made = self.code_versions or ("",)
        others = [f"code version {it}" if it else "no code version" for it in made if it != now]
        return f"made by {' and '.join(others)}, now {now}" if others else ""

    @property
    def goes_by_plans(self) -> bool:
        """Whether a plan may say what it is to replace, and let it make only some of its partitions
        again: it replaces, and is a task of Airflow's, by this package's operators, which goes by
        what a plan leaves for it."""
        is_task = self.idempotency_key is not None and self.owner.cleared is not None
        return is_task and self.mode is Mode.REPLACE and not self.by_key


@dataclass(frozen=True)
class JobNode:
    """A job as the unit that a program can make again.

    :param job: its id; ``""``: no job wrote the rows. A job whose rows a compaction wrote again is
        still the one to run.
    :param partitions: those that hold rows of it.
    :param sources: partitions that it was computed from, or would be now.
    :param stale: why what it was computed from is no more what is there; empty: it is.
    :param moved: contents of these inputs now, which tell one correction of them from the next.
    :param unknown: why that cannot be told of all; empty: it can.
    :param gone: tables that it was computed from and that are no more.
    :param self_made: partitions that it read and wrote itself.
    :param lost: by partition, keys of its files that are named and not there.
    :param mixed: several jobs whose rows were written again as one.
    :param fast: partitions that hold files of it in a fast root alone.
    :param replaced: partitions that it wrote and others hold now, with one of these.
    :param added: partitions that it replaced and to which others have added rows since, with one of
        these.
    :param in_part: whether other jobs of its run hold partitions, since a plan has let it make
        some again; ``of_run``: those partitions.
    :param empty: partitions that it replaced by nothing and that are as it left them.
    :param versions: that its partitions are at.
    """

    table: str
    job: str
    partitions: frozenset[str]
    sources: frozenset[Place] = frozenset()
    stale: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    unknown: str = ""
    gone: tuple[str, ...] = ()
    self_made: tuple[str, ...] = ()
    lost: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mixed: tuple[str, ...] = ()
    fast: frozenset[str] = frozenset()
    replaced: Mapping[str, str] = field(default_factory=dict)
    added: Mapping[str, str] = field(default_factory=dict)
    in_part: bool = False
    of_run: frozenset[str] = frozenset()
    empty: frozenset[str] = frozenset()
    versions: Mapping[str, int] = field(default_factory=dict)
    run: JobRun = JobRun()

    @property
    def key(self) -> Place:
        return self.table, self.job

    def beside(self, other: JobNode) -> JobNode:
        """Both, of one job, that were found by different files of it."""
        return replace(
            self,
            partitions=self.partitions | other.partitions,
            lost={
                name: tuple(dict.fromkeys((*self.lost_in(name), *other.lost_in(name))))
                for name in sorted({*self.lost, *other.lost})
            },
            sources=self.sources | other.sources,
            fast=self.fast | other.fast,
            added={**self.added, **other.added},
            stale=tuple(dict.fromkeys(self.stale + other.stale)),
            moved=tuple(dict.fromkeys(self.moved + other.moved)),
            versions={**self.versions, **other.versions},
        )

    def lost_in(self, partition: str) -> tuple[str, ...]:
        """Keys of its files in a partition that are named and not there."""
        return self.lost.get(partition, ())

    @property
    def places(self) -> Iterator[Place]:
        """The partitions that hold rows of it, with their table."""
        return ((self.table, name) for name in self.partitions)


def run_of(record: JobRecord) -> JobRun:
    """Read the run of a job off its record."""
    versions = record.inputs.code_versions
    key, mode = record.idempotency_key, record.mode
    return JobRun(record.owner, key, record.seconds, mode, record.by_key, versions)


@dataclass
class _Findings:
    sources: set[Place]
    stale: list[str]
    moved: list[str]
    unknown: list[str]
    self_made: list[str]
    gone: list[str]


def judged(
    node: JobNode, inputs: Inputs, wrote: Iterable[str], tables: KnownTables, version: str | None
) -> JobNode:
    """A node, with its inputs held against what is there.

    :param inputs: of all jobs that wrote its rows, its own and those that wrote them again.
    :param wrote: the partitions that the job wrote or emptied, whether they hold rows of it or not.
    :param version: the present one of its program's code; ``None``: any is right.
    """
    # A condensed decision tells it no more where others have written all its rows again.
    run = replace(node.run, code_versions=node.run.code_versions or inputs.code_versions)
    own = {(node.table, name) for name in wrote}
    found = _Findings(set(), [], [], [], [], [])
    if not inputs.tell_reads:
        found.unknown.append("what it was computed from was not told")
    elif inputs.partly:
        found.unknown.append("of some of its rows it was not told what they were computed from")
    for read in inputs.tables:
        table = tables.input_table(read.table)
        if table is None:
            found.unknown.append(f"{read.table} is gone")
            found.gone.append(read.table)
            continue
        _judge(read, table, own, found)
    for file in inputs.files:
        etag = tables.etag(file.url)
        if etag != file.etag:
            now = "gone" if etag is None else f"another object, {etag}"
            found.stale.append(f"{file.url} is {now}")
    outdated = "" if version is None else run.outdated(version)
    found.stale += [outdated] if outdated else []
    return replace(
        node,
        run=run,
        sources=frozenset(found.sources),
        stale=tuple(dict.fromkeys(found.stale)),
        moved=tuple(dict.fromkeys(found.moved)),
        unknown="; ".join(dict.fromkeys(found.unknown)),
        gone=tuple(found.gone),
        self_made=tuple(dict.fromkeys(found.self_made)),
    )


def _judge(read: TableRead, table: TableNow, own: set[Place], found: _Findings) -> None:
    known = {it.partition: it for it in read.partitions}
    try:
        selected = table.selected(read)
    except CannotTellError as error:
        found.unknown.append(str(error))
        selected = frozenset({*known, *read.names}) & table.contents.keys()
    mine = {name for name in {*known, *selected} if (table.url, name) in own}
    found.self_made += sorted(mine)
    found.sources |= {(table.url, name) for name in {*known, *selected} - mine}
    if read.digest:
        if not mine and (now := table.digest(selected)) != read.digest:
            found.stale.append(
                f"{table.url}: of {read.more} partitions that were read some differ, by {now}"
            )
        return
    for name in sorted(known.keys() - mine):
        version, content = table.state.versions.get(name, 0), table.contents.get(name, _EMPTY)
        then = known[name]
        if content == then.content:
            continue
        found.stale.append(f"{table.url}/{name} {_moved(then, version, content)}")
        found.moved.append(f"{table.url}/{name} {content}")
    for name in sorted(selected - known.keys() - mine):
        found.stale.append(f"{table.url}/{name} came since, and is asked for")
        found.moved.append(f"{table.url}/{name} {table.contents[name]}")


def _moved(then: PartitionRead, version: int, content: str) -> str:
    """Say how a partition differs from what was read.

    :param version: that it is at now; 0: a listing shows what it holds.
    """
    if content == _EMPTY:
        return "held files then, and holds none now"
    if not (version and then.version):
        return "holds other files than then"
    # A table that was deleted and made anew counts from the beginning.
    anew = ", with other rows" if version == then.version else ""
    return f"was of version {then.version}, is of {version}{anew}"
