"""A queue file that an earlier version made, and the program that makes it."""
