"""Addresses of the page, and of Airflow's own pages that it leads to."""

from __future__ import annotations

from urllib.parse import quote, urlencode, urlsplit

from ...committer.format.job_spec import Owner

#: Where the page is mounted in Airflow's API server.
MOUNT = "/zero-rename"
#: The page's name in addresses of Airflow's navigation: ``/plugin/zero-rename/…``.
ROUTE = "zero-rename"


def page_address(base_url: str, page: str, **query: str) -> str:
    """A place of the page, shown within Airflow's navigation.

    :param base_url: of Airflow, ``[api] base_url``; ``/`` or ``""`` where that is not set.
    :param page: ``table``, ``partition`` or ``job``.
    :param query: what it is about: ``conn``, ``table`` and so on.
    """
    base = base_url.rstrip("/")
    # The navigation shows the path behind its own as it is, that of a mounted Airflow included.
    mounted = f"{urlsplit(base).path}{MOUNT}"
    return f"{base}/plugin/{ROUTE}{mounted}/{page}?{urlencode(query)}"


def relative(page: str, **query: str | None) -> str:
    """The same from another place of the page, whatever Airflow is mounted below."""
    given = {name: value for name, value in query.items() if value is not None}
    return f"{page}?{urlencode(given)}"


def task_address(owner: Owner) -> str | None:
    """A job's task instance in Airflow, from any place of the page; ``None`` where no task of
    Airflow ran it."""
    if not (owner.dag_id and owner.run_id and owner.task_id):
        return None
    parts = (quote(it, safe="") for it in (owner.dag_id, owner.run_id, owner.task_id))
    address = "../dags/{}/runs/{}/tasks/{}".format(*parts)
    if owner.map_index is not None and owner.map_index >= 0:
        address += f"/mapped/{owner.map_index}"
    return address if owner.try_number is None else f"{address}?try_number={owner.try_number}"
