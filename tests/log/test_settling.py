"""Settlements of conflicts in a log: what hands them over, and what a damaged one does."""

from __future__ import annotations

import pytest

from support.log_tables import file_of
from zero_rename.committer.errors import RecordDamagedError
from zero_rename.committer.format.run_rank import RunRank
from zero_rename.committer.format.settling import SettledRuns, Settling
from zero_rename.log.actions import AppTransaction
from zero_rename.log.change import LogBase, LogChange
from zero_rename.log.job_files import hand_over, take_over
from zero_rename.log.partitions import Partition
from zero_rename.log.replay import LogState
from zero_rename.log.settling import SETTLED, settled_in, settled_transactions, standing

PLACE: Partition = ("1",)
SETTLES: dict[Partition, Settling] = {
    PLACE: Settling(SettledRuns("new", ("old", "older")), RunRank(2.0))
}


def state_of(*transactions: AppTransaction) -> LogState:
    return LogState(len(transactions), transactions={it.app: it for it in transactions})


def test_change_that_settles_is_handed_over_whole() -> None:
    change = LogChange("job", LogBase(3), adds=(file_of("job"),), settles=SETTLES)
    assert take_over(hand_over(change), "key").settles == SETTLES


def test_last_transaction_about_a_partition_counts() -> None:
    (first,) = settled_transactions(state_of(), SETTLES, (), 0)
    state = state_of(first)
    assert settled_in(state)[PLACE].runs == SETTLES[PLACE].runs
    assert standing(state) == [first]
    (ended,) = settled_transactions(state, {}, [PLACE], 0)
    assert settled_in(state_of(first, ended)) == {}
    assert standing(state_of(first, ended)) == []


def test_settlement_that_cannot_be_read_is_damage() -> None:
    with pytest.raises(RecordDamagedError, match="which conflict is settled"):
        settled_in(state_of(AppTransaction(SETTLED + "[1", 1)))
