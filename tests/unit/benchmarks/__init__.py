"""Tests of the benchmarks' arithmetic, and small runs of rows."""
