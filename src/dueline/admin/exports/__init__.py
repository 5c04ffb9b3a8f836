"""Exports: all that a store holds as files, and the import into any store (rules X7 to X10)."""
