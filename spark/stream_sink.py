"""Structured Streaming into a table: each micro-batch is one job, and is written once.

::

    from zero_rename.spark import stream

    query = stream(events, "s3://bucket/events", checkpoint="s3a://bucket/checkpoints/events",
                   partition_by=["day"], trigger={"processingTime": "1 minute"})

Spark records that a batch is done after the sink has returned. If an application dies before that,
it runs the batch again when it is started again, with the same rows and the same number. So
each batch is saved under an idempotency key made of the query's id, which lies in the checkpoint,
and that number. A job that has committed under this key is finished if needed, and not repeated.

The batch of a number may come with other rows: the checkpoint was put back, or another query goes
by a copy of it. Then Spark has planned the batch anew. So each job records what Spark had noted of
its batch, and a batch that was planned anew is refused. So is a batch that is committed already,
unless it is the first one since the query's start and was planned before: another query is at work
with the checkpoint itself, which not every file system prevents.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ..committer.commit.state.job_state import Committed
from ..committer.errors import InvalidInputError, SupersededRunError, first_few
from ..committer.format.handoff import HANDOFF, Handoff
from ..committer.format.job_spec import Mode, check_superseded
from ..committer.format.layout import TableRoot
from ..s3a.hadoop.settings import NATIVE
from ..tables.table_at_root import find_at_root
from .changing.merge_source import MergeRules
from .changing.merging import merge_by
from .changing.row_writer import refuse_policies
from .option_table import plain, texts_of
from .options import WriterOptions, writer_options
from .save_frame import save
from .write_target import WriteTarget, require_spark_frame, resolve, take_handoff

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger("zero_rename.spark.stream_sink")
#: Options of a write that the stream sets itself.
_OWN = ("idempotencyKey", "onRepeat")
#: Triggers of queries that end by themselves.
_ENDING = {"availableNow", "once"}
#: Spark's own option by which brackets, braces and stars in a path are patterns. It is switched
#: off: a pattern could match the metadata of another query, whose batches would then count as this
#: one's.
_GLOBS = "__globPaths__"
#: Spark's own option by which a file is one row.
_WHOLE_FILE = "wholetext"
#: Beginning of the word in the series of a batch's job that has the digest of the batch's plan.
_PLAN = "stream-plan-"


def stream(
    frame: DataFrame,
    table: str,
    *,
    checkpoint: str,
    partition_by: Sequence[str] = (),
    mode: str = "append",
    merge_on: Sequence[str] = (),
    delete_when: str | None = None,
    latest_by: str | None = None,
    across_partitions: bool = False,
    layout: str | None = None,
    output_mode: str = "append",
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start a streaming query that writes into a table.

    :param frame: a streaming data frame.
    :param table: ``s3://bucket/prefix``.
    :param checkpoint: the folder in which Spark keeps the query's progress and its id: a path of a
        file system that the session has, for this query only.
    :param partition_by: partition columns, outermost first; the table's own if left out.
    :param mode: the mode of each batch, as in :func:`.save_frame.save`: ``append``, or
        ``overwrite``, which replaces the partitions that the batch has rows for; or ``merge``, by
        key.
    :param merge_on: with mode merge, the key's columns; this and ``delete_when``, ``latest_by`` and
        ``across_partitions`` are as in :func:`.changing.merging.merge`.
    :param layout: the table's layout, as in :func:`.save_frame.save`: ``delta`` for a Delta table.
    :param output_mode: the choice of rows for ``DataStreamWriter.outputMode``. Mode append is
        refused with ``complete``, and with ``update`` for a frame with an aggregation.
    :param trigger: for ``DataStreamWriter.trigger``: ``{"processingTime": "1 minute"}``,
        ``{"availableNow": True}``; ``None`` begins a batch when the one before is done.
    :param name: the query's name.
    :param options: options of each batch's write, as in :func:`.save_frame.save`. With
        ``onSuperseded`` ``skip``, a batch whose partitions have all been loaded by newer runs is
        left out, and the query continues.
    :returns: the running query. An error in a batch ends it, and ``awaitTermination()`` raises it.
    :raises InvalidInputError: an invalid call; nothing was started.
    """
    root = TableRoot.parse(table)
    require_spark_frame(frame)
    if not frame.isStreaming:
        raise InvalidInputError(
            "The frame is none of a stream; nothing was started.",
            table=root.url,
            remedy="Read it by spark.readStream, or write it by save().",
        )
    take_handoff(frame.sparkSession)
    handoff = Handoff.decode(os.environ)
    options = texts_of(options or {})
    own = [name for name in options if plain(name) in map(plain, _OWN)]
    if own:
        raise InvalidInputError(
            f"{own[0]} is given, which each batch has of its own; nothing was started.",
            table=root.url,
            remedy="Leave it out of options=.",
        )
    output_mode = output_mode.lower()
    if output_mode == "update" and Mode.parse(mode) is Mode.APPEND and _aggregates(frame):
        raise InvalidInputError(
            "The frame has an aggregation. With output_mode='update' each batch has the groups "
            "that it changed, and mode append would add them to their former values; nothing was "
            "started.",
            table=root.url,
            remedy="Give mode='merge' with merge_on=, the columns of the groups; or "
            "output_mode='append' with a watermark. To keep each value that a group has had, write "
            "by save() in writeStream.foreachBatch.",
        )
    if output_mode == "complete" and Mode.parse(mode) is Mode.APPEND:
        raise InvalidInputError(
            "With output_mode='complete' each batch has all rows again, and mode append would add "
            "them to those of the batches before it; nothing was started.",
            table=root.url,
            remedy="Give mode='overwrite' for a table without partitions, or mode='merge' by key.",
        )
    rules = _rules(Mode.parse(mode), merge_on, delete_when, latest_by, across_partitions)
    target = resolve(
        root.url,
        handoff,
        partition_by=partition_by,
        mode=mode,
        committer=NATIVE,
        layout=layout,
        options=options,
    )
    read = writer_options(options, handoff, target.named_options)
    _check_options(read, rules, root.url)
    _check_task(target, handoff.about(root), {*(trigger or ())}, output_mode)
    batches = MicroBatches(
        root.url,
        checkpoint,
        target.partition_by,
        target.mode,
        {name: it for name, it in options.items() if plain(name) != "series"},
        rules,
        None if layout is None else target.layout.value,
        handoff.encode(),
        read.series,
        last_planned(frame.sparkSession, checkpoint),
    )
    writer = frame.writeStream.foreachBatch(batches).outputMode(output_mode)
    writer = writer.option("checkpointLocation", checkpoint)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    if name is not None:
        writer = writer.queryName(name)
    return writer.start()


def _aggregates(frame: DataFrame) -> bool:
    """Return whether a streaming frame has an aggregation, whose groups change with each batch.

    False on Spark Connect, whose client does not see the plan.
    """
    java: Any = getattr(frame, "_jdf", None)
    if java is None:
        return False

    def has(plan: Any) -> bool:
        # An aggregation of a frame that is joined is computed anew for each batch, and is none of
        # the stream.
        if plan.nodeName() == "Aggregate" and plan.isStreaming():
            return True
        below = plan.children()
        return any(has(below.apply(index)) for index in range(below.size()))

    return has(java.queryExecution().analyzed())


def _rules(
    mode: Mode,
    merge_on: Sequence[str],
    delete_when: str | None,
    latest_by: str | None,
    across: bool,
) -> MergeRules | None:
    """Make the rules of mode merge; ``None`` for other modes.

    :raises InvalidInputError: rules are given with another mode, or merge without a key.
    """
    if isinstance(merge_on, str):
        raise InvalidInputError(
            f"merge_on is the text {merge_on!r}; nothing was started.",
            remedy=f"Give merge_on=[{merge_on!r}].",
        )
    if mode is Mode.MERGE:
        return MergeRules(
            tuple(merge_on), delete_when=delete_when, latest_by=latest_by, across=across
        )
    if merge_on or delete_when or latest_by or across:
        raise InvalidInputError(
            f"A key is given, and mode {mode}, which has none; nothing was started.",
            remedy="Give mode='merge', or leave merge_on, delete_when, latest_by and "
            "across_partitions out.",
        )
    return None


def _check_options(options: WriterOptions, rules: MergeRules | None, table: str) -> None:
    """Refuse options when the query starts that each of its batches would refuse.

    :raises InvalidInputError: a policy that a batch cannot keep.
    """
    check_superseded(options.on_conflict, options.on_superseded, "nothing was started")
    if not options.publish:
        raise InvalidInputError(
            "publish=False is given (as an option or from the environment), and nobody would "
            "publish the jobs of a stream's batches; nothing was started.",
            table=table,
            remedy="Leave it out, or let a function of yours write each batch by save().",
        )
    if rules is not None:
        refuse_policies(options, table)


def _check_task(target: WriteTarget, said: Handoff, trigger: set[str], output_mode: str) -> None:
    """Refuse a query when it starts if it cannot do what its submitter's task expects.

    :param trigger: the names in the trigger.
    :raises InvalidInputError: the query ends by itself, and the task waits for a job of its run; or
        each batch would remove the rows of the batches before it.
    """
    what = remedy = ""
    if said.idempotency_key is not None and trigger & _ENDING:
        what = (
            "waits for one job of its run, and has none when this query ends: each batch is a job "
            "of its own"
        )
        remedy = (
            "Submit the application by what asks nothing of the table, such as the operator of "
            "Airflow's own Spark provider; or read what is new by spark.read, and write it by "
            "save()."
        )
    elif target.mode is Mode.REPLACE and target.partitions and output_mode != "complete":
        what = (
            f"names {first_few(target.partitions)}, to be replaced: each batch would replace them "
            "as a whole, with what the batches before it have written"
        )
        remedy = (
            "Let the task name no partition (partition='*'): each batch replaces those that it has "
            "rows for. Or append, or merge by key."
        )
    if what:
        raise InvalidInputError(
            f"The task that submitted the application {what}. Nothing was started.",
            table=target.root.url,
            remedy=remedy,
        )


@dataclass
class MicroBatches:
    """Function that Spark calls with each batch, in the driver or a Connect server's worker.

    :param told: variables of the application's submitter, which a Connect server does not have.
    :param series: of the task that submitted the application (:attr:`.Owner.series`).
    :param planned: the number of the last batch that was planned before this query started;
        ``None``: not known.
    """

    table: str
    checkpoint: str
    partition_by: tuple[str, ...]
    mode: Mode
    options: dict[str, str] = field(default_factory=dict)
    rules: MergeRules | None = None
    layout: str | None = None
    told: dict[str, str] = field(default_factory=dict)
    series: str | None = None
    planned: int | None = None
    _query: str | None = None
    _has_run: bool = False

    def __call__(self, batch: DataFrame, number: int) -> None:
        if self._query is None:
            self._query = query_id(batch, self.checkpoint)
            if not hasattr(batch, "_jdf"):
                _take_over(self.told)
        key, plan = self._key(number), plan_of(batch, self.checkpoint, number)
        given = {**self.options, "idempotencyKey": key, "onRepeat": "skip"}
        if series := _with_plan(self.series, plan):
            given["series"] = series
        is_first, self._has_run = not self._has_run, True
        try:
            done = self._write(batch, given)
        except SupersededRunError as error:
            if not error.skips:
                raise
            # Like a task that is skipped. The batch is done: another run would leave it out again.
            logger.warning("batch %d of the query %s is left out: %s", number, self._query, error)
            return
        if done is not None and done.repeated:
            if is_first:
                self._refuse_rewound(number)
                self._refuse_planned_anew(number, plan, done.job)
            if not is_first or self.planned not in (None, number):
                raise self._beside_another(number, done.job)
        logger.info("%s holds batch %d of the query %s", self.table, number, self._query)

    def _key(self, number: int) -> str:
        return f"stream-{self._query}-{number}"

    def _refuse_rewound(self, number: int) -> None:
        """Refuse to skip a committed batch if the next batch is committed, too.

        Normally Spark repeats only the last batch, with the same rows. It repeats an earlier one
        only if its checkpoint has lost later entries. Then the batch may have other rows than the
        committed one.

        :raises InvalidInputError: the next batch is committed.
        """
        table, key = find_at_root(self.table).table, self._key(number + 1)
        if not table.has_done(key):
            return
        job = table.job_of_key(key)
        later = f"batch {number + 1}" if job is None else f"batch {number + 1} (job {job})"
        raise self._not_the_same(
            f"Spark runs batch {number} of the query {self._query}, and the table holds that batch "
            f"and {later}: the checkpoint {self.checkpoint} was put back, or files of it are gone."
        )

    def _refuse_planned_anew(self, number: int, plan: str | None, job: str) -> None:
        """Refuse to skip a committed batch if Spark has planned a batch of its number since.

        That batch may have other rows than the committed one.

        :param plan: of the batch that runs now; ``None``: not known.
        :param job: the job that committed the batch. One of an earlier version of this package did
            not record the plan.
        :raises InvalidInputError: the two plans are known, and differ.
        """
        owner = None if plan is None else find_at_root(self.table).table.owner_of(job)
        words = [] if owner is None or owner.series is None else owner.series.split(" ")
        if plan in words or not any(word.startswith(_PLAN) for word in words):
            return
        raise self._not_the_same(
            f"Spark runs batch {number} of the query {self._query} with other offsets than those "
            f"with which the table holds it (job {job}): the checkpoint {self.checkpoint} was put "
            "back, files of it are gone, or another query goes by a copy of it."
        )

    def _beside_another(self, number: int, job: str) -> InvalidInputError:
        """Build the error for a batch that another query has committed meanwhile.

        Spark repeats only the first batch after a start, and only one that was planned before. So
        it is not one of this query's own. Not every file system keeps a second query from the
        checkpoint.
        """
        return InvalidInputError(
            f"The table holds batch {number} of the query {self._query} already, by job {job}, and "
            "this run of the query had just come to it: another query is at work with the "
            f"checkpoint {self.checkpoint}. The rows of this batch were not written, and whether "
            "the other one has all of them is not known.",
            table=self.table,
            remedy="End both queries, and compare the table with the source. Then start one query, "
            "with a new checkpoint whose source begins where the table ends.",
        )

    def _not_the_same(self, what: str) -> InvalidInputError:
        return InvalidInputError(
            f"{what} Whether the rows of this batch are in the table is not known; they were not "
            "written.",
            table=self.table,
            remedy="Give the stream a new checkpoint, and let its source begin where the table "
            "ends: its rows count as new ones. Or put the former checkpoint back.",
        )

    def _write(self, batch: DataFrame, given: Mapping[str, str]) -> Committed | None:
        how = {"partition_by": self.partition_by, "layout": self.layout, "options": given}
        if self.rules is not None:
            return merge_by(self.rules, batch, self.table, **how).committed
        done = save(batch, self.table, mode=self.mode, committer=NATIVE, **how)
        return done if isinstance(done, Committed) else None  # publish=False is refused.


def _take_over(told: Mapping[str, str]) -> None:
    """Set the variables of the client's submitter in this process, a worker of a Connect server.

    So ``save()`` here follows the same submitter as on the client.
    """
    names = {HANDOFF, *(Handoff.variable(it.name) for it in fields(Handoff))}
    for name in names & os.environ.keys():
        del os.environ[name]
    os.environ.update(told)


def query_id(batch: DataFrame, checkpoint: str) -> str:
    """Read the id of a query from its checkpoint. It stays the same over restarts.

    Spark writes it (``StreamMetadata``) before the first batch. A checkpoint that was removed and
    made again has another id. So its batches, whose numbers begin at 0 again, are not taken for
    the earlier ones.
    """
    reader = batch.sparkSession.read.option(_GLOBS, "false")
    rows = reader.text(f"{checkpoint.rstrip('/')}/metadata").collect()
    return json.loads(rows[0][0])["id"]


def last_planned(spark: SparkSession, checkpoint: str) -> int | None:
    """Return the number of the last batch that Spark has planned, by the checkpoint.

    -1: none; ``None``: the checkpoint cannot be listed.
    """
    # Imported on use: processes that only parse DAG files need not load it.
    from pyspark.errors import AnalysisException

    reader = spark.read.option(_GLOBS, "false")
    try:
        files = reader.text(f"{checkpoint.rstrip('/')}/offsets").inputFiles()
    except AnalysisException:  # There is no such folder.
        return -1
    except Exception as error:
        logger.warning(
            "whether another query has planned the first batch is not known: %s cannot be listed: "
            "%s",
            *(checkpoint, error),
        )
        return None
    names = (file.rpartition("/")[2] for file in files)
    return max((int(name) for name in names if name.isdigit()), default=-1)


def plan_of(batch: DataFrame, checkpoint: str, number: int) -> str | None:
    """Return a digest of what Spark has noted of a batch: its offsets, and when it was planned.

    Spark writes this before it runs the batch, and reads it to run the batch again. ``None``: it
    cannot be read.
    """
    file = f"{checkpoint.rstrip('/')}/offsets/{number}"
    reader = batch.sparkSession.read.option(_GLOBS, "false").option(_WHOLE_FILE, "true")
    try:
        rows = reader.text(file).collect()
    except Exception as error:
        logger.warning(
            "whether batch %d is the one that ran before is not known: %s cannot be read: %s",
            *(number, file, error),
        )
        return None
    text = "".join(row[0] for row in rows)
    return f"{_PLAN}{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _with_plan(series: str | None, plan: str | None) -> str | None:
    """Add the plan of a batch to a series, whose first and last word keep their meaning."""
    if not series or plan is None:
        return series or plan
    first, _, rest = series.partition(" ")
    return f"{first} {plan} {rest or first}"
