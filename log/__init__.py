"""Log of a table: the decisions of its jobs in one numbered sequence.

``tables/`` has what users call; ``layouts/`` answers the questions that a log asks of its table. A
step is a generator of the store's requests, like those of ``committer/commit``.

States of a job
---------------

===========  ===========================================  ==============================  ==========
state        what the store shows                         transition                      by
===========  ===========================================  ==============================  ==========
absent       no record                                    PUT ``open/J.json``: open       its owner
open         ``open/J.json``; no entry names J            PUT ``N+1.json``: committed     owner,
                                                                                          publisher
open         the same                                     PUT an entry with the fence     any
                                                          of J: fenced                    process
committed    an entry of J; ``open/J.json``               finished; DELETE ``open/J``     any
                                                                                          process
fenced       an entry with J's fence; ``open/J.json``     DELETE ``jobs/J``, ``open/J``   any
                                                                                          process
closed       no ``open/J.json``                           none: J never commits again
===========  ===========================================  ==============================  ==========

The log's end is the greatest number of a listing; a missing number does not show it. A job writes
its entry at the number after the last entry that it has judged, with If-None-Match. So either its
entry is there once, or another entry is.

Why this is correct:

* A job reads every entry after its base before it writes at the number after them (*what is bound
  is what was judged*).
* The store lets one writer have a number (*one winner*).
* After a lost answer the job writes the same bytes at the same number again (*no hole, no double*).
* A job that other processes may commit ends by an entry about it, commit or fence, that all of them
  must read (*no late birth*).
"""
