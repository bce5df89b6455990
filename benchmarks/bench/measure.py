"""One run: every peer in turn, round after round, on one store; what each took."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from bench.goals import compared
from bench.hosts import HostProcesses
from bench.peers import BY_NAME, PEERS, Peer
from bench.processes import Host, HostError, cpu_between
from bench.results import Comparison, Measurement, Row
from bench.store import DelayedStore
from bench.workloads import Workload, input_of, slug

#: Of a host or of the store. It costs one row, not the run.
TROUBLE = (HostError, BotoCoreError, ClientError)
#: Seconds that a peer has in any case for what it is asked.
_LEAST = 20.0
#: A peer that took so many seconds is not asked again.
_LONG = 25.0
#: The verb that makes ready for a verb, where a peer has it.
_LEAVES = {"recover": "die"}
#: Rounds that count of those whose rows a goal compares, before any other peer begins.
_FIRST_ROUNDS = 2
#: Files from which on what a peer takes goes by their number.
_MANY = 32


@dataclass
class Bench:
    """A run.

    :param rounds: that count, after a first one.
    :param longest: seconds that a single run may take, or half of its workload's time.
    :param end: of the whole, by the monotonic clock. What a peer is asked for then is not waited
        for, and its host ended.
    """

    store: DelayedStore
    hosts: HostProcesses
    rounds: int
    longest: float
    end: float = math.inf
    _until: float = math.inf
    _filled: set[str] = field(default_factory=set)
    _pace: dict[str, tuple[int, float]] = field(default_factory=dict)

    def measure(self, workload: Workload, peers: Sequence[Peer] = PEERS) -> Comparison:
        """All peers that know the workload, in turns, each round beginning with the next one. Those
        whose rows a goal compares are measured first: for the others there may be no time."""
        taking = [peer for peer in peers if peer.takes(workload)]
        if not taking:
            return Comparison(workload, [])
        rows = {peer.name: Row(peer.name) for peer in taking}
        act = self._cold if workload.verb == "cold" else self._warm
        self.hosts.warm({peer.host for peer in taking})
        began = time.monotonic()
        # A first run of all is worth more than further ones of some, but not than other workloads.
        last = began + workload.seconds
        self._until = last + min(workload.seconds, max(0, self.end - last) / 4)
        for number, turn in enumerate(turns(workload, taking, self.rounds)):
            for peer in turn:
                row = rows[peer.name]
                needed = _FIRST_ROUNDS if peer.name in compared(workload.name) else 0
                over = time.monotonic() > (last if len(row.runs) > needed else self._until)
                if not self._begins(peer, workload, row, over):
                    continue
                try:
                    act(peer, workload, row, number)
                except TROUBLE as error:
                    row.why = f"failed: {error}"
                told(workload, row)
        if workload.verb == "merge":
            # By the rounds that each peer had: they need not have had as many.
            self._check(workload, [it for it in taking if rows[it.name].runs], rows)
        else:
            self._compare(list(rows.values()))
        for peer in taking:
            try:
                self._look(peer, workload, rows[peer.name])
            except TROUBLE as error:
                rows[peer.name].why = f"what it left was not looked at: {error}"
        return Comparison(workload, list(rows.values()))

    def _warm(self, peer: Peer, workload: Workload, row: Row, number: int) -> None:
        host, url = self.hosts.get(peer.host), _url(peer, workload)
        self.store.make_bucket(peer.bucket)
        self.store.delay(0)
        if workload.verb == "merge":
            workload = replace(workload, round=len(row.runs))
            self._fill(peer, workload, url)
        elif workload.verb == "program":
            self._fill(peer, workload, input_of(url))
        self._ask(host, peer, workload, "prepare", url)
        if "prime" in peer.verbs:
            self._ask(host, peer, workload, "prime", f"{url}-prime")
        if workload.verb == "read":
            self._fill(peer, workload, url)
        elif workload.verb == "replace" and not row.runs:
            self._ask(host, peer, workload, "append", url)
        elif _LEAVES.get(workload.verb) in peer.verbs:
            self._ask(host, peer, workload, _LEAVES[workload.verb], url)
        elif workload.verb == "abort":
            self.store.upload(peer.bucket, url, workload.tasks)
        self._time(host, peer, workload, workload.verb, number, row)

    def _cold(self, peer: Peer, workload: Workload, row: Row, _: int) -> None:
        """Three runs of a new process on a table that is there: start, first and second save."""
        self.store.make_bucket(peer.bucket)
        self.store.delay(0)
        self._ask(self.hosts.get(peer.host), peer, workload, "append", _url(peer, workload))
        self.store.delay(workload.latency)
        began = time.monotonic()
        host = self.hosts.start(peer.host)
        try:
            took, seen = round(time.monotonic() - began, 3), self.store.traffic()
            row.runs.append(
                Measurement(0, took, cpu_between({}, host.cpu()), host.memory(), seen.requests)
            )
            for save in (1, 2):
                self._time(host, peer, workload, "append", save, row)
        finally:
            host.end()

    def _time(
        self, host: Host, peer: Peer, workload: Workload, verb: str, number: int, row: Row
    ) -> None:
        self.store.delay(workload.latency)
        host.forget_memory()
        before = host.cpu()
        answer = self._ask(host, peer, workload, verb, _url(peer, workload))
        cpu, seen = cpu_between(before, host.cpu()), self.store.traffic()
        seconds = round(answer["seconds"], 3)
        row.found = answer["rows"]
        if workload.verb == "append" and workload.latency and workload.files >= _MANY:
            self._pace[peer.name] = (workload.files, seconds)
        counted = (seen.requests, seen.throttled, seen.written)
        row.runs.append(Measurement(number, seconds, cpu, host.memory(), *counted))

    def _ask(
        self, host: Host, peer: Peer, workload: Workload, verb: str, url: str
    ) -> dict[str, Any]:
        given = {"peer": peer.name, "verb": verb, "workload": workload.as_dict(), "url": url}
        left = min(self._until - time.monotonic(), workload.seconds / 2, self.longest)
        answer = host.ask(max(_LEAST, left), **given)
        if "error" in answer:
            raise HostError(answer["error"])
        return answer

    def _fill(self, peer: Peer, workload: Workload, url: str) -> None:
        """Make the table to read or to merge into, where it is not there yet."""
        filler = BY_NAME[peer.table or peer.name]
        if url not in self._filled:
            self.store.make_bucket(filler.bucket)
            self._ask(self.hosts.get(filler.host), filler, workload, "append", url)
            self._filled.add(url)

    def _begins(self, peer: Peer, workload: Workload, row: Row, over: bool) -> bool:
        """Whether a peer has another run; where it has none at all, its row says why."""
        if row.why or row.runs:
            row.cut = row.cut or (over and not row.why)
            return not (row.why or over or row.runs[-1].seconds > _LONG)
        if over:
            row.why = "left out: the time was up"
        elif workload.verb == "append" and workload.latency and peer.name in self._pace:
            known, seconds = self._pace[peer.name]
            expected = seconds * workload.files / known
            if expected > self.longest:
                took = f"{known} files took {seconds:.0f} s"
                row.why = f"left out: {took}, so that some {expected:.0f} s are to be expected"
        return not row.why

    def _check(self, workload: Workload, peers: Sequence[Peer], rows: Mapping[str, Row]) -> None:
        """Whose table is not as a merge leaves it is not measured."""
        self.store.delay(0)
        for peer in peers:
            row = rows[peer.name]
            asked = replace(workload, round=len(row.runs) - 1)
            try:
                host, url = self.hosts.get(peer.host), _url(peer, workload)
                row.found = self._ask(host, peer, asked, "check", url)["rows"]
            except TROUBLE as error:
                row.why, row.runs = f"failed: {error}", []

    @staticmethod
    def _compare(rows: Sequence[Row]) -> None:
        """Who finds other rows than the first one is not measured."""
        found = [row for row in rows if row.found is not None]
        for row in found:
            if row.found != found[0].found:
                row.why = f"failed: {row.found} rows, not {found[0].found}"
                row.runs = []

    def _look(self, peer: Peer, workload: Workload, row: Row) -> None:
        """How many files are there, and make room."""
        if workload.verb == "read" or (row.why and not row.runs):
            return
        prefix = _url(peer, workload).split("/", 3)[3]
        sizes = self.store.files(peer.bucket, prefix)
        row.files, row.bytes = len(sizes), sum(sizes)
        bucket = self.store.bucket(peer.bucket)
        bucket.delete(f"{prefix}/")
        self._filled.discard(_url(peer, workload))
        # Those of a workload before, whose peer was ended in the midst of it, are not of this one.
        left = row.files + len(bucket.uploads(f"{prefix}/"))
        if workload.verb == "abort" and left:
            row.why = f"failed: {left} files or uploads are left"


def turns(workload: Workload, taking: Sequence[Peer], rounds: int) -> Iterator[list[Peer]]:
    """The peers of each round. Those whose rows a goal compares have a cold round and their first
    rounds by themselves, then the others a cold one.

    :param rounds: of all peers, that count.
    """
    first = [peer for peer in taking if peer.name in compared(workload.name)]
    others = [peer for peer in taking if peer not in first]
    if workload.verb == "cold":
        yield [*first, *others]
        return
    apart = bool(first and others)
    for number in range(min(rounds, _FIRST_ROUNDS) + 1 if apart else 0):
        yield _turned(first, number)
    if apart:
        yield others
    for number in range(rounds + (not apart)):
        yield _turned(taking, number)


def _turned(peers: Sequence[Peer], number: int) -> list[Peer]:
    start = number % len(peers)
    return [*peers[start:], *peers[:start]]


def _url(peer: Peer, workload: Workload) -> str:
    """Of a peer's table, or of the one it reads. Its own in each workload: catalogs remember."""
    name = workload.verb if workload.verb == "read" else workload.name
    bucket = (BY_NAME[peer.table] if peer.table else peer).bucket
    return f"s3://{bucket}/{slug(name)}"


def told(workload: Workload, row: Row) -> None:
    """Say how it goes."""
    took = f"{row.runs[-1].seconds:.2f} s" if row.runs else ""
    print(f"  {workload.name}: {row.peer}: {row.why or took}", file=sys.stderr, flush=True)
