"""Price of stored bytes, to show what orphaned uploads cost."""

from __future__ import annotations

#: Price of S3 Standard in us-east-1 for the first 50 TB, in dollars per GiB and month. Parts of
#: uploads cost as much as objects.
STANDARD = 0.023
GIB = 2.0**30


def monthly_cost(size: int, price: float = STANDARD) -> float:
    """Return what so many bytes cost for a month.

    :param size: in bytes.
    :param price: per GiB and month.
    """
    return size / GIB * price
