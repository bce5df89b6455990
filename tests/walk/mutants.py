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
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, ModuleType


@dataclass(frozen=True)
class Mutant:
    """A slip.

    :param module: below ``zero_rename.committer``.
    :param text: of the module, there once; ``instead``: what the slip makes of it.
    :param verbs: that walks are about which catch it; the first of these was that of ``seed``.
    :param by_heads: whether these are of tables that are read by heads.
    """

    name: str
    module: str
    text: str
    instead: str
    verbs: tuple[str, ...]
    seed: int = 0
    by_heads: bool = False


MUTANTS = (
    Mutant(
        "gc deletes a list that a head names, where its own swap's answer was lost",
        "upkeep.gc.fold_heads",
        "if key not in now.head.lists:",
        "if True:",
        ("append", "gc", "append", "replace"),
        8,
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
        8,
    ),
    Mutant(
        "a fold deletes its list, though the head names it",
        "commit.apply",
        "if folded is not None and folded not in state.head.lists:",
        "if folded is not None:",
        ("append", "evolve"),
        148,
    ),
    Mutant(
        "a resolution goes by no base",
        "upkeep.resolution",
        "base=self.snapshot.base,",
        "on_conflict='last_wins',",
        ("append", "undo", "replace"),
        66,
    ),
    Mutant(
        "a compaction goes by no base",
        "upkeep.compaction",
        '"base": state.base,',
        '"on_conflict": "last_wins",',
        ("append", "compact"),
        14,
    ),
    Mutant(
        "a run replaces its own rows that a compaction wrote again",
        "commit.changes",
        "if (shared and not target.replaces) or any(",
        "if False and any(",
        ("append", "compact", "replace"),
        18,
    ),
    Mutant(
        "a run that replaces its own leaves the partitions that it writes no more",
        "commit.commit",
        "for job, change in (yield from _own_before(context, opened)):",
        "for job, change in ():",
        ("append",),
        3,
    ),
    Mutant(
        "a first job adopts nothing",
        "commit.changes",
        "foreign = {file.key for of_it in files.values() for file in of_it}",
        "foreign = set()",
        ("append", "read"),
        8,
    ),
    Mutant(
        "an adoption leaves one partition out",
        "upkeep.adopt",
        "wanted[start : start + _AT_ONCE])",
        "wanted[start + 1 : start + _AT_ONCE])",
        ("append", "adopt"),
        34,
    ),
    Mutant(
        "what a job has read does not count",
        "commit.claim",
        "if request.read is not None and",
        "if False and",
        ("append", "read, modify, write"),
        3,
    ),
    Mutant(
        "an append goes by any replace",
        "commit.claim",
        "return state.head.replace_version > base",
        "return False",
        ("append", "replace", "open", "commit"),
        1,
    ),
    Mutant(
        "an index holds the first file of each partition",
        "commit.index.write_index",
        "state.slot.name, state.etag, state.head.version, of_it, state.head.schema_version",
        "state.slot.name, state.etag, state.head.version, of_it[:1], state.head.schema_version",
        ("append", "index", "read"),
        1,
    ),
    Mutant(
        "an index is made of heads that carry a claim",
        "commit.index.write_index",
        "if isinstance(it, HeadState) and it.head.claim is None]",
        "if isinstance(it, HeadState)]",
        ("append", "index", "read"),
        186,
    ),
    Mutant(
        "symlink manifests are begun for one partition",
        "upkeep.symlink_keeping",
        "names = [state.slot.name for state in states if state.head.version]",
        "names = [state.slot.name for state in states if state.head.version][:1]",
        ("keep symlinks", "append"),
        18,
    ),
    Mutant(
        "only the owner of a job writes symlink manifests",
        "commit.apply",
        "    if decided.decision.symlinks:\n        # Before",
        "    if decided.decision.symlinks and held is not None:\n        # Before",
        ("keep symlinks", "append", "recover"),
        1,
    ),
    Mutant(
        "a marker is written over that of a later job",
        "commit.markers",
        "            if state.head.last_job != job:\n                return\n",
        "",
        ("append", "recover"),
        10,
    ),
    Mutant(
        "a claim does not finish what the job before has to remove",
        "commit.claim",
        "        yield from _finish_last_job(context, opened, request, state)\n",
        "",
        ("append", "replace"),
        263,
    ),
    Mutant(
        "a purge aborts the uploads of open jobs",
        "upkeep.purge_plan",
        'return False, "its job is open"',
        'return True, "its job is open"',
        ("open", "purge", "commit"),
        11,
    ),
    Mutant(
        "a recovery takes no claims off",
        "commit.abort",
        "    yield from All(tuple(release_claim(context, slot, job) for slot in slots))\n",
        "",
        ("append", "recover"),
        1,
    ),
    Mutant(
        "a commit decision is said to be refused after an unanswered request",
        "commit.state.decide",
        "    error = CommitStateUnknownError if decision.is_commit else OutcomeUnknownError",
        "    error = DamagedError if not decision.is_commit else StoreUnreachableError",
        ("append", "replace"),
        65,
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
        2529,
    ),
    Mutant(
        "a reader passes over decided commits that are not applied",
        "commit.snapshot",
        "            error = yield from _finish(context, decided)\n",
        "            error = None\n            continue\n",
        ("append", "read"),
        2,
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
        1,
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
        18,
    ),
    Mutant(
        "maintenance takes a plan's word away",
        "commit.state.old_records",
        "(recompute_prefix(root), max(kept_for, KEPT_FOR)),",
        "(recompute_prefix(root), kept_for),",
        ("replace", "make again", "gc"),
        164,
    ),
)

#: Slips of changes of rows, in either kind of table.
CHANGES = (
    Mutant(
        "a merge goes by no base",
        "row_rewrite",
        '"base": state.base,',
        '"on_conflict": "last_wins",',
        ("append", "merge"),
        22,
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
        1,
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
        21,
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
        17,
    ),
    Mutant(
        "a row matches those of all partitions that other rows lie in",
        "row_merge",
        "return keys if merge.across else [*keys, places]",
        "return keys",
        ("append", "merge"),
        18,
    ),
    Mutant(
        "a merge is said to have written its own rows alone",
        "upkeep.compaction",
        '"merges": merges,',
        '"merges": {},',
        ("append", "merge"),
        28,
    ),
    Mutant(
        "a merge that is made once more takes back what it wrote",
        "changeable_table",
        "again = OnRepeat.APPEND if spec.on_repeat is OnRepeat.REPLACE_OWN else spec.on_repeat",
        "again = spec.on_repeat",
        ("append", "merge"),
        3,
    ),
    Mutant(
        "a deletion leaves the rows",
        "changeable_table",
        "job.write(condition.drop(batch))",
        "job.write(batch)",
        ("append", "delete"),
        1,
    ),
    Mutant(
        "a deletion leaves the file of a partition's last rows",
        "changeable_table",
        "changed = {name for name, rows in counts.items() if rows.deleted}",
        "changed = {name for name, rows in counts.items() if rows.deleted and rows.unchanged}",
        ("append", "delete"),
        3,
    ),
)

#: Slips about the past of a table that keeps it.
PAST = tuple(
    replace(slip, by_heads=True)
    for slip in (
        Mutant(
            "an undoing goes by no base",
            "upkeep.restoring",
            "base=ReadBase(self.url, dict(self.restored.found), whole=False),",
            "on_conflict='last_wins',",
            ("append", "replace", "take back"),
            1,
        ),
        Mutant(
            "an undoing takes back one partition",
            "upkeep.restoring",
            "for change in decided.decision.partitions}",
            "for change in decided.decision.partitions[:1]}",
            ("append", "replace", "take back"),
            1,
        ),
        Mutant(
            "a restoration leaves partitions that came later",
            "upkeep.restoring",
            "if held.get(n) != holds.get(n)}",
            "if n in held and held[n] != holds.get(n)}",
            ("append", "replace", "restore"),
            3,
        ),
        Mutant(
            "a job that takes back does not look whether it is still kept",
            "commit.commit",
            "    yield from check_kept(context, opened, states)\n",
            "",
            ("append", "replace", "take back", "purge"),
            1,
        ),
        Mutant(
            "a restoration does not look at the columns again",
            "commit.brought_back",
            "former.schema_version < table.overwritten",
            "former.schema_version < 0",
            ("append", "restore", "overwrite schema"),
            1,
        ),
        Mutant(
            "a run that takes its rows back begins no new line",
            "format.records.partition_decision",
            "return not (self.replace or self.dropped_job)",
            "return not self.replace",
            ("append", "replace", "read past"),
            1,
        ),
        Mutant(
            "a run takes out its last try alone, which was taken back",
            "commit.changes",
            "decided.decision.idempotency_key == key",
            "job == target.drops",
            ("append", "take back"),
            27,
        ),
        Mutant(
            "a version has the rows of later jobs",
            "format.records.kept_state",
            "later = [move.job for move in self.moves[len(moves) :]]",
            "later = []",
            ("append", "read past"),
        ),
        Mutant(
            "a version has the rows of later jobs that were folded",
            "format.records.kept_state",
            "dropped=(*self.dropped, *folded) if self.manifests else (),",
            "dropped=self.dropped,",
            ("append", "gc", "read past"),
            1,
        ),
        Mutant(
            "a purge asks only what heads name now",
            "upkeep.unnamed_data",
            "for file in (*it.now, *it.kept)",
            "for file in it.now",
            ("append", "replace", "purge"),
            2,
        ),
        Mutant(
            "a purge forgets before the retention is over",
            "format.records.head",
            "kept = tuple(line for line in self.kept if line.until >= before)",
            "kept = tuple(line for line in self.kept if line.until >= before + 1e6)",
            ("append", "replace", "purge"),
            2,
        ),
        Mutant(
            "a purge keeps the oldest states",
            "format.records.head",
            "kept = kept[max(0, len(kept) - most) :]",
            "kept = kept[:most]",
            ("append", "replace", "purge"),
            31,
        ),
        Mutant(
            "a head forgets under a claim",
            "upkeep.retention",
            "if state.head.claim is not None or state.etag is None:",
            "if state.etag is None:",
            ("take back", "purge"),
            1255,
        ),
        Mutant(
            "a retention is not taken over",
            "upkeep.retention",
            "retention=int(seconds)",
            "retention=60",
            ("append", "replace", "retain", "purge"),
            6,
        ),
        Mutant(
            "gc condenses what is kept",
            "upkeep.gc.condense",
            "line.decisions for head in heads for line in head.lines",
            "head.decisions for head in heads",
            ("append", "replace", "gc"),
        ),
        Mutant(
            "a list that is only kept is nobody's",
            "format.records.head",
            "return frozenset(manifest.key for line in self.lines for manifest in line.manifests)",
            "return frozenset(manifest.key for manifest in self.manifests)",
            ("append", "replace", "gc"),
            2,
        ),
        Mutant(
            "the losers that are swept are the winners",
            "commit.close",
            "yield from sweep_data(context, job, {key for key, _ in keep})",
            "yield from sweep_data(context, job, set())",
            ("open", "commit"),
        ),
    )
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
    module = importlib.import_module(f"zero_rename.committer.{mutant.module}")
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
