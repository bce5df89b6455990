"""One log for each table: the decisions of its jobs in one numbered sequence.

``tables/`` has what users call; ``layouts/`` says what a log asks of its table. A step is a
generator of the store's requests, like those of ``committer/commit``.

States of a job
---------------

===========  ===========================================  ==============================  ==========
state        what the store shows                         transition                      by
===========  ===========================================  ==============================  ==========
absent       no record                                    PUT ``open/J.json``: open       its owner
open         ``open/J.json``; no entry names J            PUT ``N+1.json``: committed     owner,
                                                                                          publisher
open         the same                                     PUT an entry with the fence     anybody
                                                          of J: fenced
committed    an entry of J; ``open/J.json``               finished; DELETE ``open/J``     anybody
fenced       an entry with J's fence; ``open/J.json``     DELETE ``jobs/J``, ``open/J``   anybody
closed       no ``open/J.json``                           none: J commits no more
===========  ===========================================  ==============================  ==========

The log's end is the greatest number of a listing; no missing number says so. An entry goes to the
number after the last one that was judged, with If-None-Match: it is there once, or another one is.

Why it is right: every entry after a job's base is read before the number after it is asked for
(*what is bound is what was judged*); the number is bound by the store (*one winner*); an answer
that did not come is asked for again at the same number with the same bytes (*no hole, no double*);
and a job that others may commit ends by an entry of its own, commit or fence, that all of them
must pass (*no late birth*).
"""
