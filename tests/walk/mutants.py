"""Broken versions of the product, which walks must catch: a piece of a module's text, and what
stands there instead.

A mutant changes what the module's functions do, whoever has imported them: their code is swapped,
and put back.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType


@dataclass(frozen=True)
class Mutant:
    """A slip.

    :param module: below ``zero_rename.committer``; of slips about Delta tables and Hadoop's
        committers below the package.
    :param text: of the module, there once; ``instead``: what the slip makes of it.
    :param verbs: that walks are about which catch it; the first of these was that of ``seed``. Not
        for Hadoop's committers.
    """

    name: str
    module: str
    text: str
    instead: str
    verbs: tuple[str, ...] = ()
    seed: int = 0


MUTANTS = (
    Mutant(
        "gc deletes a list that a head names, where its own swap's answer was lost",
        "upkeep.gc.fold_heads",
        "if key not in {it.key for it in now.head.manifests}:",
        "if True:",
        ("append", "gc", "append", "replace"),
        2,
    ),
    Mutant(
        "gc condenses decisions that heads name",
        "upkeep.gc.collect",
        "free = set(asked) - still_open - known.named",
        "free = set(asked) - still_open",
        ("append", "gc"),
        3,
    ),
    Mutant(
        "the files of a replaced run stay in a folded list",
        "commit.state.partition_files",
        "for file in files if file.job not in head.dropped)",
        "for file in files)",
        ("append", "gc"),
        6,
    ),
    Mutant(
        "a fold deletes its list, though the head names it",
        "commit.apply",
        "if folded is not None and folded not in {it.key for it in state.head.manifests}:",
        "if folded is not None:",
        ("append", "evolve"),
        34,
    ),
    Mutant(
        "a resolution goes by no base",
        "upkeep.conflicts.resolution",
        "base=self.snapshot.base,",
        "on_conflict='last_wins',",
        ("append", "undo", "replace"),
        3,
    ),
    Mutant(
        "a compaction goes by no base",
        "upkeep.compaction",
        '"base": state.base,',
        '"on_conflict": "last_wins",',
        ("append", "compact"),
        1,
    ),
    Mutant(
        "a run replaces its own rows that a compaction wrote again",
        "commit.changes",
        "if (shared and not target.replaces) or any(",
        "if False and any(",
        ("append", "compact", "replace"),
        7,
    ),
    Mutant(
        "a run that replaces its own leaves the partitions that it writes no more",
        "commit.commit",
        "for job, change in (yield from _own_before(context, opened)):",
        "for job, change in ():",
        ("append",),
    ),
    Mutant(
        "a first job adopts nothing",
        "commit.changes",
        "foreign = {file.key for of_it in files.values() for file in of_it}",
        "foreign = set()",
        ("append", "read"),
        5,
    ),
    Mutant(
        "an adoption leaves one partition out",
        "upkeep.adopt",
        "_take(context, spec, some)",
        "_take(context, spec, some[1:])",
        ("append", "adopt"),
        79,
    ),
    Mutant(
        "what a job has read does not count",
        "commit.claim",
        "if request.read is not None and",
        "if False and",
        ("append", "read, modify, write"),
        9,
    ),
    Mutant(
        "an append goes by any replace",
        "commit.claim",
        "return state.head.replace_version > base",
        "return False",
        ("append", "replace", "open", "commit"),
        2,
    ),
    Mutant(
        "an index holds the first file of each partition",
        "commit.index.write_index",
        "state.slot.name, state.etag, state.head.version, of_it, state.head.schema_version",
        "state.slot.name, state.etag, state.head.version, of_it[:1], state.head.schema_version",
        ("append", "index", "read"),
    ),
    Mutant(
        "an index is made of heads that carry a claim",
        "commit.index.write_index",
        "if isinstance(it, HeadState) and it.head.claim is None]",
        "if isinstance(it, HeadState)]",
        ("append", "index", "read"),
        22,
    ),
    Mutant(
        "a marker is written over that of a later job",
        "commit.markers",
        "            if state.head.last_job != job:\n                return\n",
        "",
        ("append", "recover"),
        41,
    ),
    Mutant(
        "a claim does not finish what the job before has to remove",
        "commit.claim",
        "        yield from _finish_last_job(context, opened, request, state)\n",
        "",
        ("append", "replace"),
        28,
    ),
    Mutant(
        "a purge aborts the uploads of open jobs",
        "upkeep.purging.purge_plan",
        'return False, "its job is open"',
        'return True, "its job is open"',
        ("open", "purge", "commit"),
        6,
    ),
    Mutant(
        "a recovery takes no claims off",
        "commit.abort",
        "    yield from All(tuple(release_claim(context, slot, job) for slot in slots))\n",
        "",
        ("append", "recover"),
        4,
    ),
    Mutant(
        "a commit decision is said to be refused after an unanswered request",
        "commit.state.decide",
        "    error = CommitStateUnknownError if decision.is_commit else OutcomeUnknownError",
        "    error = DamagedError if not decision.is_commit else StoreUnreachableError",
        ("append", "replace"),
        2,
    ),
    Mutant(
        "the columns that a job brings do not become the table's",
        "commit.evolve",
        "if schema is record.schema and record.evolution is None:",
        "if record.evolution is None:",
        ("evolve",),
    ),
    Mutant(
        "a reader lists the heads once",
        "commit.snapshot",
        "if settled and _etags(again) == seen:",
        "if settled:",
        ("replace", "read"),
        26,
    ),
    Mutant(
        "a reader passes over decided commits that are not applied",
        "commit.snapshot",
        "            error = yield from _finish(context, decided)\n",
        "            error = None\n            continue\n",
        ("append", "read"),
        7,
    ),
)

#: Slips about runs that a plan lets make only some partitions again.
AGAIN = (
    Mutant(
        "a narrowed run takes back all that it has made",
        "commit.commit",
        "for name in sorted(targets) if only is None or name in only)",
        "for name in sorted(targets))",
        ("replace", "make again"),
        3,
    ),
    Mutant(
        "a run that was narrowed takes back what it has made last alone",
        "commit.commit",
        "        job = earlier.decision.narrows\n",
        "        job = None\n",
        ("replace", "make again"),
        3,
    ),
    Mutant(
        "a narrowed run goes by no plan's versions",
        "commit.commit",
        "planned = opened.planned.get(partition)",
        "planned = None",
        ("replace", "make again"),
        14,
    ),
    Mutant(
        "maintenance takes a plan's word away",
        "commit.state.old_records",
        "(recompute_prefix(root), max(kept_for, KEPT_FOR)),",
        "(recompute_prefix(root), kept_for),",
        ("replace", "make again", "gc"),
        448,
    ),
)

#: Slips of changes of rows.
CHANGES = (
    Mutant(
        "a merge goes by no base",
        "row_rewrite",
        '"base": state.base,',
        '"on_conflict": "last_wins",',
        ("append", "merge"),
        1,
    ),
    Mutant(
        "a merge loses the rows that it does not match",
        "row_merge",
        "kept = concatenated([batch.filter(pc.invert(matched)), old.filter(stays)])",
        "kept = old.filter(stays)",
        ("append", "merge"),
    ),
    Mutant(
        "a merge leaves the former values beside the new ones",
        "row_merge",
        "stays = pc.and_not(pc.invert(deletes), updates)",
        "stays = pc.invert(deletes)",
        ("append", "update"),
    ),
    Mutant(
        "a merge that changes nothing writes the partition anew",
        "row_merge",
        "changed |= {name} if result.deleted or len(result.changed) else set()",
        "changed |= {name}",
        ("append", "merge"),
        1,
    ),
    Mutant(
        "a merge does not empty a partition whose rows move",
        "row_merge",
        "changed |= {name} if result.deleted or len(result.changed) else set()",
        "changed |= {name} if result.deleted else set()",
        ("append", "merge"),
        13,
    ),
    Mutant(
        "a merge inserts what it deletes",
        "row_merge",
        "return pc.invert(pc.or_(pc.is_in(numbers, matched), self.deletes))",
        "return pc.invert(pc.is_in(numbers, matched))",
        ("append", "merge"),
        1,
    ),
    Mutant(
        "a merge looks for keys in the partitions of its rows alone",
        "changeable_table",
        "return whole.chosen({*touched, *found})",
        "return whole.chosen(touched)",
        ("append", "merge"),
        22,
    ),
    Mutant(
        "a row matches those of all partitions that other rows lie in",
        "row_merge",
        "return keys if merge.across else [*keys, places]",
        "return keys",
        ("append", "merge"),
        44,
    ),
    Mutant(
        "a merge is said to have written its own rows alone",
        "upkeep.compaction",
        '"merges": merges,',
        '"merges": {},',
        ("append", "merge"),
    ),
    Mutant(
        "a merge that is made once more takes back what it wrote",
        "changeable_table",
        "again = OnRepeat.APPEND if spec.on_repeat is OnRepeat.REPLACE_OWN else spec.on_repeat",
        "again = spec.on_repeat",
        ("append", "merge"),
        20,
    ),
    Mutant(
        "a deletion leaves the rows",
        "changeable_table",
        "job.write(condition.drop(batch))",
        "job.write(batch)",
        ("append", "delete"),
    ),
    Mutant(
        "a deletion leaves the file of a partition's last rows",
        "changeable_table",
        "changed = {name for name, rows in counts.items() if rows.deleted}",
        "changed = {name for name, rows in counts.items() if rows.deleted and rows.unchanged}",
        ("append", "delete"),
        5,
    ),
)

#: Slips about Delta tables.
DELTA = (
    Mutant(
        "a replace removes what its opening has read",
        "log.judging",
        "replaces = change.overtaking is Overtaking.FAIL and change.replaced.has(partition)",
        "replaces = False",
        ("append", "replace", "open", "commit"),
        4,
    ),
    Mutant(
        "a job's rows that were computed from a state go by the job's opening",
        "tables.delta_entry",
        "    if base is None or base.log_version is None:\n        return log.version\n",
        "    return log.version\n",
        ("append", "read, modify, write", "replace"),
        7,
    ),
    Mutant(
        "a run that replaces its own adds its rows beside them",
        "log.rerunning",
        "removes=change.removes | self.live | self.compacted.removes,",
        "removes=change.removes | self.compacted.removes,",
        ("append",),
    ),
    Mutant(
        "a run that replaces its own takes rows of others with those that it has changed",
        "log.rerunning",
        "if any(it.path in there for _, it in same) and not replaced.has(place):",
        "if False:",
        ("append", "merge", "delete"),
        11,
    ),
    Mutant(
        "a compaction is taken back and the files of others stay away",
        "log.rerunning",
        "returned=(*change.returned, *self.compacted.returned),",
        "returned=change.returned,",
        ("append", "compact"),
        1,
    ),
    Mutant(
        "a run takes the place of a newer one's rows",
        "log.judging",
        "if found := {place: it for place, it in found.items() if place not in change.settles}:",
        "if False:",
        ("replace by rank", "append by rank"),
        3,
    ),
    Mutant(
        "a run goes by what has replaced a partition, and not by what was added since",
        "committer.format.records.partition_ranks",
        "return self.newest if replaces else self.replaced",
        "return self.replaced",
        ("replace by rank", "append by rank"),
        3,
    ),
    Mutant(
        "a run takes the place of one that is as new, and came since",
        "log.judging",
        "if place is not None and meets and is_met(entry, before, place, change.ranks.of(place)):",
        "if False:",
        ("replace by rank", "open", "commit"),
        20,
    ),
    Mutant(
        "a run that loads again loses its rows where it gives way",
        "tables.delta_ranks",
        "removes=change.removes - stays,",
        "removes=change.removes,",
        ("append by rank", "replace"),
        16,
    ),
    Mutant(
        "a compaction forgets how new the runs are",
        "log.ranks",
        "said[place] = before[place].after(rank, False)",
        "said[place] = NO_RANKS",
        ("replace by rank", "append", "compact"),
        29,
    ),
    Mutant(
        "a partition without a file forgets how new the run was that has emptied it",
        "log.ranks",
        "return [AppTransaction(name, state.version + 1, now) for name in sorted(names)]",
        "return []",
        ("replace named by rank",),
    ),
    Mutant(
        "a log that was opened before is not read on",
        "tables.readable_delta",
        "before = seen_log(self.driver, self.root)",
        "before = seen_log(self.driver, self.root)\n"
        "        if before is not None:\n"
        "            return OpenedLog(before, 0.0)",
        ("append", "read"),
    ),
    Mutant(
        "an undoing brings back what partitions held, whoever has changed them since",
        "log.undoing",
        "if blocking := past.first_to_undo(version):",
        "if False and (blocking := past.first_to_undo(version)):",
        ("append", "replace", "undo job"),
    ),
    Mutant(
        "an undoing takes back what was taken back before",
        "log.undoing",
        "places = Scope(frozenset(past.in_effect(version)))",
        "places = Scope(frozenset(past.changed(version)))",
        ("append", "replace", "undo job", "restore some"),
        45,
    ),
    Mutant(
        "a restore of some partitions takes the files of the others away",
        "log.restoring",
        "goes = {path for path, it in state.live.items() if within.has(state.partition(it))}",
        "goes = {*state.live}",
        ("append", "restore some"),
    ),
    Mutant(
        "a restore leaves the columns as they are",
        "log.restoring",
        "metadata = restored if restored != state.metadata else None",
        "metadata = None",
        ("append", "evolve", "restore"),
        2,
    ),
    Mutant(
        "a restore goes on beside other jobs",
        "log.restoring",
        "reads=within,",
        "",
        ("append", "restore", "open", "commit"),
        13,
    ),
    Mutant(
        "a job of a run that has loaded again may be published",
        "log.judging",
        "if change.run is not None and entry.transaction(RUN + change.run):",
        "if False:",
        ("append", "hold back", "publish"),
        806,
    ),
    Mutant(
        "purge forgets files of open jobs",
        "log.purging",
        "and _job_of(folders, key) not in open_jobs and is_of_job(key)",
        "and is_of_job(key)",
        ("open", "purge", "commit"),
        4,
    ),
    Mutant(
        "a recovery fences no dead job",
        "log.fencing",
        "        fences=frozenset({job}),\n",
        "",
        ("open", "recover", "commit"),
        4,
    ),
    Mutant(
        "an abort deletes the files of a job whose entry is there",
        "tables.delta_commit",
        "    if verdict.entry is None:\n"
        "        yield from delete_files(file.key for result in results for file in result.files)\n"
        "        return Aborted(opened.job, opened.root.url, 0)\n"
        "    log =",
        "    yield from delete_files(file.key for result in results for file in result.files)\n"
        "    if verdict.entry is None:\n"
        "        return Aborted(opened.job, opened.root.url, 0)\n"
        "    log =",
        ("append", "replace"),
        15,
    ),
    Mutant(
        "a copy of a file is beside it",
        "tables.delta_checkpoint",
        "removes=frozenset(sources),",
        "",
        ("append", "copy"),
        1,
    ),
    Mutant(
        "a settlement takes away rows of runs that are not in the conflict",
        "tables.delta_settling",
        "_refuse_lost_rows(conflict, winner, present - held, RERUN_REMEDY)",
        "",
        ("replace late", "settle conflict"),
        8,
    ),
    Mutant(
        "nobody loses by a settlement",
        "tables.delta_settling",
        "losers = tuple(sorted(others - held))",
        "losers = ()",
        ("replace late", "settle conflict"),
        6,
    ),
    Mutant(
        "a settlement brings back what the partition held at first",
        "tables.delta_settling",
        "former = yield from _find_kept(layout, runs, conflict, winner, place)",
        "former = _PastFiles({}, state.metadata)",
        ("replace late", "settle conflict"),
        6,
    ),
    Mutant(
        "a run that has lost adds its rows",
        "log.checksum",
        "newest = [*(it for it in standing(state) if it not in newest), *newest]",
        "newest = [it for it in newest if it not in standing(state)]",
        ("replace late", "settle conflict", "append"),
        7,
    ),
    Mutant(
        "a settlement stands though another run has replaced the partition",
        "log.change",
        "or (change.replaced.has(place) and it.runs.stands != change.run)",
        "or False",
        ("replace late", "settle conflict"),
        12,
    ),
    Mutant(
        "a settlement against a run is not asked for",
        "log.judging",
        "if touched and (found := lost_to(state, touched, change.run, change.settles)):",
        "if False and (found := lost_to(state, touched, change.run, change.settles)):",
        ("replace late", "settle conflict"),
        19,
    ),
)

#: Slips about writers without conditions, in Delta tables.
CARELESS = (
    Mutant(
        "a repair does not ask what came since",
        "log.repairing",
        "judge(change, before, entry)",
        "pass",
        ("append", "replace", "write over", "repair"),
        4,
    ),
    Mutant(
        "a repair says that the job is another one",
        "log.repairing",
        "run=runs[0].removeprefix(RUN) if runs else None,",
        "run=None,",
        ("append", "write over", "repair"),
        8,
    ),
    Mutant(
        "purge deletes what a repair would commit again",
        "log.purging",
        "lost = {it.job for it in found if FENCE + it.job not in state.transactions}",
        "lost = set()",
        ("append", "write over", "purge", "repair"),
        12,
    ),
)

#: Slips about runs by Hadoop's committers.
HADOOP = (
    Mutant(
        "a sensor is ready over files that a dead run has removed, which nobody has settled",
        "orchestration.s3a.written_partitions",
        "    left += (_left_by(known.record) for known in at_work)\n",
        "",
        ("replace", "partitioned", "fail"),
        11,
    ),
    Mutant(
        "a sensor is ready over files that a run has removed, which was undone",
        "orchestration.s3a.written_partitions",
        "if it.until >= (since or 0.0) and (",
        "if False and (",
        ("replace",),
        241,
    ),
    Mutant(
        "recovery leaves no report of a job that it rolls forward",
        "s3a.recovery.execute",
        "if record is not None and not record.is_alone:",
        "if False:",
        ("append", "magic"),
        22,
    ),
    Mutant(
        "a run loads over the rows of a newer one, by Hadoop's committers",
        "orchestration.s3a.conflicts",
        "    if not found:\n        if compares:",
        "    if True:\n        if compares:",
        ("replace", "newest_run"),
        3,
    ),
)

#: Slips about runs that give way, in tables of directories.
RUNS = (
    Mutant(
        "a settlement against a run is not asked for, in directories",
        "commit.newest_run",
        "if ranks.has_lost(run):",
        "if False:",
        ("replace late", "settle conflict"),
        4,
    ),
    Mutant(
        "a settlement stands though another run has replaced the partition, in directories",
        "format.records.partition_ranks",
        "return PartitionRanks(rank, rank)",
        "return replace(self, newest=rank, replaced=rank)",
        ("replace late", "settle conflict"),
        4,
    ),
    Mutant(
        "a run that has lost keeps its rows",
        "upkeep.conflicts.conflict_settling",
        "if not now.is_of(winner, state.head.last_job) or others & now.runs:",
        "if False:",
        ("replace late", "settle conflict"),
        6,
    ),
    Mutant(
        "no run gives way to a newer one",
        "commit.newest_run",
        "return policy is OnConflict.NEWEST_RUN and ranks.supersede(rank(), replaces, run, where)",
        "return False",
        ("append by rank", "replace by rank"),
    ),
    Mutant(
        "a run leaves its own rows where newer runs were",
        "commit.claim",
        "return request.writes or _changed(opened, request, state)",
        "return True",
        ("append by rank", "replace by rank", "replace named by rank"),
        30,
    ),
    Mutant(
        "rows that are added make a partition as old as their run",
        "format.records.partition_ranks",
        "if stands or not replaces:\n            rank = newest_of(rank, self.newest)",
        "if stands:\n            rank = newest_of(rank, self.newest)",
        ("append by rank", "replace by rank"),
        13,
    ),
)

#: Slips that leave a file which a second Complete has brought back.
LEAVING = (
    Mutant(
        "nobody looks whether a file came back",
        "commit.apply",
        "if context.facts.complete_resurrects:\n        # Whatever",
        "if False:\n        # Whatever",
        ("append",),
    ),
    Mutant(
        "nobody looks where the answer was lost",
        "commit.apply",
        "if context.facts.complete_resurrects:\n        # Whatever",
        "if context.facts.complete_resurrects and isinstance(done, Done):\n        # Whatever",
        ("append",),
    ),
)


@contextmanager
def in_force(mutant: Mutant) -> Iterator[None]:
    """The product with the slip, inside.

    :raises LookupError: the text does not stand in the module once.
    """
    room = "" if mutant in (*DELTA, *CARELESS, *HADOOP) else "committer."
    module = importlib.import_module(f"zero_rename.{room}{mutant.module}")
    source = inspect.getsource(module)
    if source.count(mutant.text) != 1:
        raise LookupError(f"{mutant.module} has {mutant.text!r} {source.count(mutant.text)} times")
    changed = source.replace(mutant.text, mutant.instead)
    assert module.__file__ is not None
    codes = dict(_codes(compile(changed, module.__file__, "exec")))
    functions = dict(_functions(module))
    before = {name: it.__code__ for name, it in functions.items()}
    try:
        for name, function in functions.items():
            function.__code__ = codes[name]
        yield
    finally:
        for name, function in functions.items():
            function.__code__ = before[name]


def _functions(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """A module's functions, those of its classes too, by qualified name."""
    for found in vars(module).values():
        if getattr(found, "__module__", None) != module.__name__:
            continue
        members = vars(found).values() if isinstance(found, type) else (found,)
        for member in members:
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if (
                isinstance(function, FunctionType)
                and function.__code__.co_filename == module.__file__
            ):
                yield function.__qualname__, function


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _codes(constant)
