"""Exports: all that a store holds as files, and the import into any store (rules E1 to E4)."""
