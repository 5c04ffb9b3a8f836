"""Durable functions: a function is a job whose `at` moves, and the log of what it has done decides.

The rules are in docs/protocols.md (D1 to D14).
"""
