"""Price of what is stored and of use to nobody."""

from __future__ import annotations

#: S3 Standard, the first 50 TB in us-east-1, dollars per GiB and month; parts are paid for as
#: objects are.
STANDARD = 0.023
GIB = 2.0**30


def monthly_cost(size: int, price: float = STANDARD) -> float:
    """What so many bytes cost a month.

    :param price: per GiB and month.
    """
    return size / GIB * price
