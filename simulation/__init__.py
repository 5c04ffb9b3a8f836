"""Complete runs of a queue, in one thread, with all kinds of faults.

The engine is the shipped code. The simulation replaces its environment: clocks, threads, the
connection to the store, and faults, all chosen by one sequence of numbers (the tape) that a seed
determines. The same seed gives the same run.
"""
