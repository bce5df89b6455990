"""The rows that peers without Spark write, and those of a merge: what is brought, what comes of it.

A merge is into a table of ordered partitions: one row in a hundred of all, into one partition in
twelve. Nine in ten of the rows are there and get another ``d``, one in ten is new.
"""

# In one of the hosts' environments these come without stubs.

from __future__ import annotations

from typing import Any

from bench.workloads import Workload

#: Of a merge, by whoever is told the partition, too.
KEYS = ("id", "day")
#: Of so many partitions one is merged into: 30 of 365.
_EVERY = 12


def table_of(ids: Any, d: Any, **more: Any) -> Any:
    """Rows by their numbers, as :meth:`.spark_peers.SparkSide.frame` has them."""
    import pyarrow as pa

    text = pa.array(ids * 2654435761 % 4294967296).cast(pa.string())
    columns = {"id": ids, "a": (ids % 7).astype("int32"), "s": text, "d": d}
    return pa.table(columns | {name: it.astype("int32") for name, it in more.items()})


def source(workload: Workload) -> Any:
    """What is merged in the workload's round."""
    import numpy as np

    ids = np.concatenate([_updated(workload), _inserted(workload, workload.round)])
    return table_of(ids, ids / 3.0 + workload.round + 1, day=_day(workload, ids))


def expected(workload: Workload) -> Any:
    """All rows after the workload's round and each before it, by ``id``."""
    import numpy as np

    ids = np.arange(workload.rows)
    d = ids / 3.0
    d[_updated(workload)] += workload.round + 1
    for number in range(workload.round + 1):
        fresh = _inserted(workload, number)
        ids, d = np.concatenate([ids, fresh]), np.concatenate([d, fresh / 3.0 + number + 1])
    return table_of(ids, d, day=_day(workload, ids))


def check(workload: Workload, found: Any) -> int:
    """How many rows there are after a merge, all of them as they are to be.

    :param found: all of a table.
    :raises LookupError: other rows.
    """
    wanted = expected(workload)
    rows = found.select(wanted.column_names).cast(wanted.schema).sort_by("id").combine_chunks()
    if not rows.equals(wanted):
        raise LookupError(f"after the merge {rows.num_rows} rows, not these {wanted.num_rows}")
    return rows.num_rows


def _touched(workload: Workload) -> int:
    return max(1, workload.partitions // _EVERY)


def _updated(workload: Workload) -> Any:
    """Ids that are there, spread over the partitions that are merged into."""
    import numpy as np

    ids = np.arange(workload.rows)
    day = _day(workload, ids)
    ids = ids[(day % _EVERY == 0) & (day < _touched(workload) * _EVERY)]
    wanted = max(1, workload.rows * 9 // 1000)
    return ids[np.linspace(0, len(ids) - 1, wanted).astype("int64")]


def _inserted(workload: Workload, number: int) -> Any:
    """New ids of a round."""
    import numpy as np

    each = max(1, workload.rows // 1000)
    return workload.rows + number * each + np.arange(each)


def _day(workload: Workload, ids: Any) -> Any:
    """Of new ids one of those that are merged into, by turns."""
    import numpy as np

    known = ids * workload.partitions // workload.rows
    return np.where(ids < workload.rows, known, ids % _touched(workload) * _EVERY)
