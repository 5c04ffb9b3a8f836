"""Five example applications of DBOS, ported: whose workers are killed, and whose effects counted.

Each module is one of them on dueline; `originals` has their workflows on DBOS. Both call the same
functions of `world`. `python -m tests.kills.ports` runs both sides and counts.
"""
