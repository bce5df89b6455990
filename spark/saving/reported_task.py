"""One task of ``save()`` in a worker: its rows written, its result as one row of Arrow."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence

import pyarrow as pa

from ..worker import freeze_worker, readable_errors
from .task_rows import write_rows


def report(
    payload: bytes, columns: Sequence[str], freeze: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write a task's rows, then yield one batch with one row: the task and its pickled result.

    :param payload: the pickled open job.
    :param columns: the rows' columns, by position.
    :param freeze: freeze the worker after it (:func:`..worker.freeze_worker`).
    """
    with readable_errors():
        named = (
            pa.RecordBatch.from_arrays(batch.columns, names=list(columns)) for batch in batches
        )
        result = write_rows(pickle.loads(payload), named)
        if freeze:
            freeze_worker()
    number = pa.array([result.task], pa.int32())
    yield pa.record_batch(
        [number, pa.array([pickle.dumps(result)], pa.binary())], names=["task", "result"]
    )
