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

    :param module: below ``zero_rename.committer``.
    :param text: of the module, there once; ``instead``: what the slip makes of it.
    :param verbs: that walks are about which catch it; the first of these was that of ``seed``.
    """

    name: str
    module: str
    text: str
    instead: str
    verbs: tuple[str, ...]
    seed: int = 0


MUTANTS = (
    Mutant(
        "gc deletes a list that a head names, where its own swap's answer was lost",
        "upkeep.gc.fold_heads",
        "if key not in {it.key for it in now.head.manifests}:",
        "if True:",
        ("append", "gc", "append", "replace"),
        117,
    ),
    Mutant(
        "gc settles decisions that heads name",
        "upkeep.gc.collect",
        "free = set(asked) - still_open - known.named",
        "free = set(asked) - still_open",
        ("append", "gc"),
        2,
    ),
    Mutant(
        "the files of a replaced run stay in a folded list",
        "commit.state.partition_files",
        "for file in files if file.job not in head.dropped)",
        "for file in files)",
        ("append", "gc"),
        3,
    ),
    Mutant(
        "a fold deletes its list, though the head names it",
        "commit.apply",
        "if folded is not None and folded not in {it.key for it in state.head.manifests}:",
        "if folded is not None:",
        ("append", "evolve"),
        135,
    ),
    Mutant(
        "a resolution goes by no base",
        "upkeep.resolution",
        "base=self.snapshot.base,",
        "on_conflict='last_wins',",
        ("append", "undo", "replace"),
        3,
    ),
    Mutant(
        "a compaction goes by no base",
        "upkeep.compaction",
        "base=state.base,",
        "on_conflict='last_wins',",
        ("append", "compact"),
        7,
    ),
    Mutant(
        "a run replaces its own rows that a compaction wrote again",
        "commit.changes",
        "if own_are_shared or any(target.drops in change.merged for change in changes):",
        "if False:",
        ("append", "compact", "replace"),
        18,
    ),
    Mutant(
        "a run that replaces its own leaves the partitions that it writes no more",
        "commit.commit",
        "for change in earlier.decision.partitions if earlier else ():",
        "for change in () if earlier else ():",
        ("append",),
        0,
    ),
    Mutant(
        "a first job adopts nothing",
        "commit.changes",
        "foreign = {file.key for of_it in files.values() for file in of_it}",
        "foreign = set()",
        ("append", "read"),
        2,
    ),
    Mutant(
        "an adoption leaves one partition out",
        "upkeep.adopt",
        "wanted[start : start + _AT_ONCE])",
        "wanted[start + 1 : start + _AT_ONCE])",
        ("append", "adopt"),
        12,
    ),
    Mutant(
        "what a job has read does not count",
        "commit.claim",
        "if request.read is not None and",
        "if False and",
        ("append", "read, modify, write"),
        2,
    ),
    Mutant(
        "an append goes by any replace",
        "commit.claim",
        "return state.head.replace_epoch > base",
        "return False",
        ("append", "replace", "open", "commit"),
        6,
    ),
    Mutant(
        "an index holds the first file of each partition",
        "commit.index.write_index",
        "state.slot.name, state.etag, state.head.epoch, of_it, state.head.schema_version",
        "state.slot.name, state.etag, state.head.epoch, of_it[:1], state.head.schema_version",
        ("append", "index", "read"),
        0,
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
        "symlink manifests are begun for one partition",
        "upkeep.symlink_keeping",
        "names = [state.slot.name for state in states if state.head.epoch]",
        "names = [state.slot.name for state in states if state.head.epoch][:1]",
        ("keep symlinks", "append"),
        44,
    ),
    Mutant(
        "only the owner of a job writes symlink manifests",
        "commit.apply",
        "    if decided.decision.symlinks:\n        # Before",
        "    if decided.decision.symlinks and held is not None:\n        # Before",
        ("keep symlinks", "append", "recover"),
        4,
    ),
    Mutant(
        "a marker is written over that of a later job",
        "commit.markers",
        "            if state.head.last_job != job:\n                return\n",
        "",
        ("append", "recover"),
        16,
    ),
    Mutant(
        "a claim does not finish what the job before has to remove",
        "commit.claim",
        "        yield from _finish_last_job(context, opened, request, state)\n",
        "",
        ("append", "replace"),
        205,
    ),
    Mutant(
        "a purge aborts the uploads of open jobs",
        "upkeep.purge_plan",
        'return False, "its job is open"',
        'return True, "its job is open"',
        ("open", "purge", "commit"),
        3,
    ),
    Mutant(
        "a recovery takes no claims off",
        "commit.abort",
        "    yield from All(tuple(release_claim(context, slot, job) for slot in slots))\n",
        "",
        ("append", "recover"),
        22,
    ),
    Mutant(
        "a commit decision is said to be refused after an unanswered request",
        "commit.state.decide",
        "    error = CommitStateUnknownError if decision.is_commit else OutcomeUnknownError",
        "    error = DamagedError if not decision.is_commit else StoreUnreachableError",
        ("append", "replace"),
        79,
    ),
    Mutant(
        "the columns that a job brings do not become the table's",
        "commit.evolve",
        "if schema is record.schema and record.evolution is None:",
        "if record.evolution is None:",
        ("evolve",),
        0,
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
        4,
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
