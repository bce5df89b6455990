"""Whatever a dead job left and whoever asks: all of its files are visible afterwards, or none,
or nothing was touched."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from support.s3a_jobs import JOB, OTHER, ROOT, MadeFile, World
from zero_rename.committer.store.requests import AbortUpload, Put
from zero_rename.s3a.recovery.liveness import Action, RecoveryOptions
from zero_rename.s3a.recovery.recover import JobOutcome, recover_jobs

FILE = st.sampled_from(["outstanding", "outstanding", "written", "written", "lost", "foreign"])
TASK = st.lists(FILE, max_size=3)


@dataclass(frozen=True)
class Left:
    """What a job left: the state of each file of each task, and the rest."""

    tasks: list[list[str]]
    damaged: bool
    running: bool
    marker: str

    def make(self, world: World) -> list[tuple[MadeFile, str]]:
        if self.marker == "older":
            world.put_marker(OTHER)
        world.clock.advance(5)
        job = world.job()
        files = []
        for task, states in enumerate(self.tasks):
            made = job.task(task, [f"day={n}" for n in range(len(states))])
            files += list(zip(made, states, strict=True))
        if self.running:
            job.running(len(self.tasks))
        world.clock.advance(5)
        for made, state in files:
            if state == "written":
                job.complete(made)
            elif state != "outstanding":
                world.store.apply(AbortUpload(made.key, made.upload_id))
            if state == "foreign":
                world.store.apply(Put(made.key, b"another's"))
        if self.damaged and self.tasks:
            job.put(job.set_key(len(self.tasks) - 1), b"{")
        if self.marker in (JOB, OTHER):
            world.put_marker(self.marker)
        world.clock.advance(5)
        return files


LEFT = st.builds(
    Left,
    st.lists(TASK, max_size=3),
    st.sampled_from([False, False, True]),
    st.booleans(),
    st.sampled_from(["", "", "older", OTHER, JOB]),
)
DEAD = RecoveryOptions(apply=True, dead=frozenset({JOB}))
OPTIONS = st.builds(
    RecoveryOptions,
    apply=st.sampled_from([True, True, True, False]),
    force=st.booleans(),
    patience=st.sampled_from([None, 0.0]),
    dead=st.sampled_from([frozenset(), frozenset({JOB})]),
    direction=st.sampled_from([None, None, Action.BACK, Action.FORWARD]),
)


@settings(max_examples=250)
@given(LEFT, OPTIONS)
# A file of a set that cannot be read, in a folder of its own.
@example(Left([["outstanding"], ["outstanding", "written"]], True, False, ""), DEAD)
def test_all_or_none_or_untouched(left: Left, options: RecoveryOptions) -> None:
    world = World()
    files = left.make(world)
    before = world.store.copy()
    results = world.driver.run(recover_jobs(ROOT, options))
    (found,) = [one for one in results if one.left == "magic"]
    event(str(found.outcome))
    there = {key: stored.body for key, stored in world.store.objects.items()}
    unreadable = len(left.tasks[-1]) if left.damaged and left.tasks else 0
    readable, hidden = files[: len(files) - unreadable], files[len(files) - unreadable :]
    for made, state in files:
        if state == "foreign":
            assert there[made.key] == b"another's"
    if found.outcome is JobOutcome.ROLLED_FORWARD:
        if left.marker != JOB:
            check_forward(left, files, there)
    elif found.outcome in (JobOutcome.ROLLED_BACK, JobOutcome.FILES_LEFT):
        assert all(there.get(made.key) != made.body for made, _ in readable)
        visible = {made.key for made, _ in hidden if there.get(made.key) == made.body}
        if visible:
            assert options.direction is Action.BACK
        if visible and readable:  # Else nothing says what the names of its files are.
            assert (found.outcome, set(found.kept) >= visible) == (JobOutcome.FILES_LEFT, True)
        assert not {made.upload_id for made, _ in readable} & set(world.store.uploads)
    else:
        assert found.outcome in UNTOUCHED
    if not any(one.outcome in SETTLED for one in results):
        assert world.store.objects == before.objects
        assert world.store.uploads == before.uploads
    if found.outcome in SETTLED:
        assert options.apply
        assert world.magic() == []
        world.driver.run(recover_jobs(ROOT, options))
        again = {key: stored.body for key, stored in world.store.objects.items()}
        assert again == there, "a repeat changes nothing"


SETTLED = (JobOutcome.ROLLED_FORWARD, JobOutcome.ROLLED_BACK, JobOutcome.FILES_LEFT)
UNTOUCHED = (
    JobOutcome.NEEDS_DECISION,
    JobOutcome.LEFT,
    JobOutcome.WOULD_ROLL_BACK,
    JobOutcome.WOULD_ROLL_FORWARD,
)


def check_forward(left: Left, files: list[tuple[MadeFile, str]], there: dict[str, bytes]) -> None:
    assert not left.damaged or not left.tasks
    assert all(there[made.key] == made.body for made, _ in files)
    states = {state for _, state in files}
    assert states.isdisjoint({"lost", "foreign"})
    assert "written" in states
