"""Contention for the numbers of a log, which jobs lose to other jobs.

Each lost number costs two round trips: the refused PUT, then a read of the entry that is there. Two
rules reduce this. Measured with 32 writers at once, 8 jobs each, 30 ms for an answer, in virtual
time (``tests/log/test_contention.py``):

===========================================  ============  ==============  ===================
rule                                         jobs/second   requests a job  most lost by one
===========================================  ============  ==============  ===================
none                                         16            62              72
also read the entries right after it         25            60              77
also wait after each of the first few        26            58              46
===========================================  ============  ==============  ===================

Half of a job's requests are for entries that came while it ran: each has to be judged.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..committer.store.requests import Clock, Step, Wait

#: How many entries are read ahead at most.
_AHEAD = 8
#: After so many lost numbers a job no longer waits in favour of jobs that have lost more.
_PATIENT = 6
#: Seconds that a job waits at most after a lost number.
_LONGEST_WAIT = 1.0


@dataclass(frozen=True)
class Contention:
    """The numbers that a job has lost so far.

    :param lost: how many.
    :param ahead: how many later entries are read together with that at the next lost number.
    """

    lost: int = 0
    ahead: int = 0

    @property
    def is_patient(self) -> bool:
        """True if the job waits after the next lost number."""
        return 0 < self.lost < _PATIENT

    def give_way(self, sent_at: float) -> Step[None]:
        """Wait after a lost number, longer the more numbers were lost before.

        Callers do this for the first few only (:attr:`is_patient`): so jobs that have lost many
        numbers win against jobs that have just come.

        :param sent_at: when the entry was sent, by this process's clock.
        """
        took = (yield from Clock()) - sent_at
        if took > 0:
            yield from Wait(min(took * self.lost, _LONGEST_WAIT), spread=1.0)

    def after(self, came: int) -> Contention:
        """Return the contention after another lost number.

        Next time one entry more is read ahead than was found this time; or twice as many and one,
        if all that were read ahead were there.

        :param came: how many entries were found after the one at the lost number.
        """
        ahead = 2 * self.ahead + 1 if came == self.ahead else came + 1
        return Contention(self.lost + 1, min(_AHEAD, ahead))


#: No number lost.
CALM = Contention()
