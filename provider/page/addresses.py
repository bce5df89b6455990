"""Addresses of the page, and of Airflow's own pages that it links to."""

from __future__ import annotations

from urllib.parse import quote, urlencode, urlsplit

from ...committer.format.job_spec import Owner
from ...committer.format.records.run_conflict import is_dagsters

#: Path of the page in Airflow's API server.
MOUNT = "/zero-rename"
#: Name of the page in addresses of Airflow's navigation: ``/plugin/zero-rename/…``.
ROUTE = "zero-rename"


def page_address(base_url: str, page: str, **query: str) -> str:
    """Return the address of a page that is shown within Airflow's navigation.

    :param base_url: of Airflow, ``[api] base_url``; ``/`` or ``""`` if that is not set.
    :param page: ``table``, ``partition`` or ``job``.
    :param query: the query's values: ``conn``, ``table`` and so on.
    """
    base = base_url.rstrip("/")
    # The navigation shows the path after its own unchanged, so it must include the path below which
    # Airflow is mounted.
    mounted = f"{urlsplit(base).path}{MOUNT}"
    return f"{base}/plugin/{ROUTE}{mounted}/{page}?{urlencode(query)}"


def relative(page: str, **query: str | None) -> str:
    """Return the address of a page relative to another one, so that Airflow's path does not matter.

    :param query: the query's values; those that are ``None`` are left out.
    """
    given = {name: value for name, value in query.items() if value is not None}
    return f"{page}?{urlencode(given)}"


def task_address(owner: Owner) -> str | None:
    """Return the address of a job's task instance in Airflow, relative to any page.

    :return: ``None`` if no task of Airflow ran the job.
    """
    if is_dagsters(owner, None) or not (owner.dag_id and owner.run_id and owner.task_id):
        return None
    parts = (quote(it, safe="") for it in (owner.dag_id, owner.run_id, owner.task_id))
    address = "../dags/{}/runs/{}/tasks/{}".format(*parts)
    if owner.map_index is not None and owner.map_index >= 0:
        address += f"/mapped/{owner.map_index}"
    return address if owner.try_number is None else f"{address}?try_number={owner.try_number}"
