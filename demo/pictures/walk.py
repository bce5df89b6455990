"""A walk through the page, as somebody takes it who is woken at night: what is seen is asserted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from urllib.parse import urlencode

from ..dataset import partition_on
from ..scenario import CORRECTED, DAG_ID
from .browser import Browser
from .night import CONFLICTED, FAILED, LOST, MISSING, RUNNING
from .server import ApiServer

_CONN = "zero_rename_default"


class Walk:
    """From Airflow's home page to a partition's history, and from there to the task.

    :param say: told what has been seen.
    """

    def __init__(self, window: Browser, server: ApiServer, say: Callable[[str], None]) -> None:
        self._window = window
        self._server = server
        self._say = say

    def all(self) -> None:
        """:raises DemoError: something is not where it should be."""
        for step in (
            self.without_a_login,
            self.log_in,
            self.tables,
            self.table,
            self.partition,
            self.manifest,
            self.task,
            self.dark,
        ):
            step()
            self._say(f"   seen: {step.__name__.replace('_', ' ')}")

    def _open(self, page: str, **query: str) -> None:
        asked = urlencode({"conn": _CONN, "table": "flights", **query})
        self._window.leave_frame()
        self._window.open(f"{self._server.address}/plugin/zero-rename/zero-rename/{page}?{asked}")
        self._window.enter_frame()

    def without_a_login(self) -> None:
        self._window.resize(1360, 1000)
        self._window.open(f"{self._server.address}/zero-rename/tables?conn={_CONN}")
        self._window.expect("h1", "Not logged in")

    def log_in(self) -> None:
        window = self._window
        window.open(f"{self._server.address}/")
        window.element("input[name=username]").send_keys(self._server.user)
        window.element("input[name=password]").send_keys(self._server.password)
        window.click("button[type=submit]")
        window.element("nav, aside, [class*=chakra]", "Browse")

    def tables(self) -> None:
        """By Airflow's own navigation."""
        window = self._window
        window.click("button", "Browse")
        window.click("[role=menuitem], a", "Zero Rename")
        window.enter_frame()
        window.expect("td", "flights", "Partitions: 1 failed, 2 conflicted, 1 running")

    def table(self) -> None:
        window = self._window
        window.click("td a", "flights")
        window.expect("h1", "Partitions: 1 failed, 2 conflicted, 1 running")
        for day, state in ((FAILED, "failed"), (CONFLICTED, "conflicted"), (LOST, "conflicted")):
            self._square(day, state)
        self._square(RUNNING, "running")
        self._square(CORRECTED, "replaced")
        self._square(date(2013, 1, 15), "committed")
        gap = (
            "return [...document.querySelectorAll('rect.gap title')].some("
            f"it => it.textContent.startsWith('{MISSING}'))"
        )
        window.wait(f"{MISSING} as a gap", lambda: window.driver.execute_script(gap))
        window.expect("section", "Leaked uploads\n3")
        window.expect("section", "18.0 MiB")
        window.picture("airflow-table")
        window.element("section[data-filled]")
        script = "document.querySelector('section[data-filled]').scrollIntoView()"
        window.driver.execute_script(script)
        window.picture("airflow-orphaned-uploads")

    def _square(self, day: date, state: str) -> None:
        script = (
            "return [...document.querySelectorAll('.calendar a')].find("
            f"it => it.querySelector('title').textContent.startsWith('{day}: '))"
            "?.querySelector('title').textContent"
        )
        said = f"{day}: {state}"
        window = self._window
        window.wait(said, lambda: (window.driver.execute_script(script) or "").startswith(said))

    def partition(self) -> None:
        window = self._window
        window.click("td a", partition_on(CONFLICTED))
        window.expect("h1", partition_on(CONFLICTED))
        window.expect("td", "manual__2013-11-19", "scheduled__2013-11-19", "backfill.py")
        window.picture("airflow-partition")

    def manifest(self) -> None:
        window = self._window
        window.click("td a.mono", "zr1-")
        window.expect("h2", "Manifest")
        window.expect("td", "sha256:", partition_on(CONFLICTED))

    def task(self) -> None:
        """From a day that the DAG loaded to its task instance, and back by the task's own links."""
        window = self._window
        self._open("partition", partition=partition_on(CORRECTED))
        window.click("td a", f"{DAG_ID}.load")
        window.leave_frame()
        window.wait(
            "the task instance", lambda: f"/dags/{DAG_ID}/runs/" in window.driver.current_url
        )
        window.click("[role=tab], a", "Details")
        window.element("a", "Manifest")
        address = window.element("a", "Partition").get_attribute("href")
        window.open(address)
        window.enter_frame()
        window.expect("h1", partition_on(CORRECTED))

    def dark(self) -> None:
        self._open("table")
        self._window.leave_frame()
        self._window.theme("dark")
        self._window.enter_frame()
        self._window.expect("section", "Leaked uploads\n3")
        self._window.picture("airflow-table-dark")
