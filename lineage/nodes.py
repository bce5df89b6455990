"""Jobs whose rows tables hold, as nodes of a graph: their inputs, checked, and their runs."""

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
    """The facts about a job that are needed to run it again.

    :param seconds: from the job's opening to its decision; ``None``: not on record.
    :param mode: what the job did with the rows that were there.
    :param by_key: whether it matched rows by key, as a merge does.
    :param code_versions: of the programs that made the rows, as these named them; ``""`` for rows
        whose code version is not known.
    """

    owner: Owner = NOBODY
    idempotency_key: str | None = None
    seconds: float | None = None
    mode: Mode | None = None
    by_key: bool = False
    code_versions: tuple[str, ...] = ()

    def outdated(self, now: str) -> str:
        """Return why the run's rows are not of the present code version; empty: they are."""
        made = self.code_versions or ("",)
        others = [f"code version {it}" if it else "no code version" for it in made if it != now]
        return f"made by {' and '.join(others)}, now {now}" if others else ""

    @property
    def goes_by_plans(self) -> bool:
        """True if a plan may restrict the run to some of its partitions and to certain versions.
        The run must replace, and be a task of this package's operators in Airflow: such a task
        reads the restriction that a plan leaves for it."""
        owner = self.owner  # A stream's batch has a series of its own outside Airflow.
        of_task = owner.task_id is not None and owner.cleared is not None
        is_task = self.idempotency_key is not None and of_task
        return is_task and self.mode is Mode.REPLACE and not self.by_key


@dataclass(frozen=True)
class JobNode:
    """A job as the unit that a program can run again.

    :param job: its id; ``""``: no job wrote the rows. If a compaction rewrote a job's rows, the job
        to run is still the one that made them.
    :param partitions: those that hold rows of it.
    :param sources: partitions that it was computed from, or would be now.
    :param stale: why its inputs are no longer as they were; empty: they are.
    :param moved: the present contents of the inputs that have changed. They distinguish one
        correction of an input from the next.
    :param unknown: why not all inputs can be compared; empty: they can.
    :param gone: tables that it was computed from and that no longer exist.
    :param self_made: partitions that it read and wrote itself.
    :param lost: keys of its missing files, by partition.
    :param mixed: several jobs whose rows were rewritten together, so that they cannot be told
        apart.
    :param fast: partitions that hold files of it in a fast root only.
    :param replaced: partitions that it wrote and others hold now, each with one of these jobs;
        ``""`` if no job holds any of it.
    :param added: partitions that it replaced and to which others have added rows since, each with
        one of these jobs; ``""`` for files that no job wrote.
    :param in_part: whether a plan has let the run make only some of its partitions again, so that
        several jobs of it hold partitions; ``of_run``: those that other jobs of the run hold.
    :param empty: partitions that it replaced by nothing and that are as it left them.
    :param versions: the present versions of its partitions.
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
        """Merge this node with another one of the same job, found through other files of it."""
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
            unknown="; ".join(dict.fromkeys(filter(None, (self.unknown, other.unknown)))),
            gone=tuple(dict.fromkeys(self.gone + other.gone)),
            self_made=tuple(dict.fromkeys(self.self_made + other.self_made)),
            mixed=tuple(dict.fromkeys(self.mixed + other.mixed)),
            versions={**self.versions, **other.versions},
        )

    def lost_in(self, partition: str) -> tuple[str, ...]:
        """Return the keys of its missing files in a partition."""
        return self.lost.get(partition, ())

    @property
    def places(self) -> Iterator[Place]:
        """The partitions that hold rows of it, with their table."""
        return ((self.table, name) for name in self.partitions)


def run_of(record: JobRecord) -> JobRun:
    """Return the run of a job from its record."""
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
    """Return a node with its inputs checked against the present state of the tables.

    :param inputs: of all jobs that wrote its rows: its own, and those of jobs that rewrote them.
    :param wrote: the partitions that the job wrote or emptied, whether they hold rows of it or not.
    :param version: the present version of its program's code; ``None``: any is right.
    """
    # A condensed decision no longer has the code version if other jobs have rewritten all rows.
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

    :param version: the partition's present version; 0: its files are known from a listing, without
        a version.
    """
    if content == _EMPTY:
        return "held files then, and holds none now"
    if not (version and then.version):
        return "holds other files than then"
    # A table that was deleted and created again counts its versions from the start.
    anew = ", with other rows" if version == then.version else ""
    return f"was of version {then.version}, is of {version}{anew}"
