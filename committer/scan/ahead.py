"""Iterators read one after the other, the next ones begun in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar, cast

T = TypeVar("T")
_END = object()


def begun_ahead(sources: Iterable[Iterator[T]], width: int) -> Iterator[T]:
    """The items of all sources, in order. Of the next ``width`` sources one item each is had, or
    being had, ahead of its turn: so much is in memory, however long the sources are."""
    left = iter(sources)
    with ThreadPoolExecutor(width) as pool:

        def begin(source: Iterator[T]) -> tuple[Iterator[T], Future[T | object]]:
            return source, pool.submit(next, source, _END)

        begun = deque(begin(source) for source in islice(left, width))
        try:
            while begun:
                source, future = begun.popleft()
                item = future.result()
                if item is _END:
                    begun.extend(begin(source) for source in islice(left, 1))
                    continue
                begun.appendleft(begin(source))
                yield cast(T, item)
        finally:
            pool.shutdown(cancel_futures=True)
