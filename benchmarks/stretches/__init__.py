"""Claims of many rows by one record: a prototype of the proposed rules G1 to G8, and its cost."""
