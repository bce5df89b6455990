"""The verbs of walks through tables of directories, by name."""

from __future__ import annotations

from collections.abc import Mapping

from walk import change_verbs, conflict_verbs, run_verbs, verbs
from walk.verbs import Verb

VERBS: Mapping[str, Verb] = {
    "merge": change_verbs.merge,
    "update": change_verbs.merge,
    "delete": change_verbs.delete,
    "make again": run_verbs.make_again,
    **dict.fromkeys(
        (
            *("append", "replace", "replace named", "replace table", "fail if exists"),
            *("evolve", "overwrite schema", "replace late"),
            *("append by rank", "replace by rank", "replace named by rank"),
        ),
        conflict_verbs.write,
    ),
    "settle conflict": conflict_verbs.settle_conflict,
    "read, modify, write": verbs.read_modify_write,
    "open": verbs.open_job,
    "commit": verbs.commit,
    "abort": verbs.abort,
    "heartbeat": verbs.heartbeat,
    "compact": verbs.compact,
    "gc": verbs.gc,
    "index": verbs.index,
    "adopt": verbs.adopt,
    "recover": verbs.recover,
    "settle": verbs.settle,
    "purge": verbs.purge,
    "resolve": verbs.resolve,
    "undo": verbs.undo,
    "read": verbs.read,
    "look after": verbs.look_after,
}
#: Verbs that are about one job, whose fate their errors tell.
OF_ONE_JOB = {
    *("append", "replace", "replace named", "replace table", "fail if exists", "evolve"),
    *("append by rank", "replace by rank", "replace named by rank", "replace late"),
    *("overwrite schema", "read, modify, write", "commit", "resolve", "undo"),
    *("merge", "update", "delete", "make again"),
}
