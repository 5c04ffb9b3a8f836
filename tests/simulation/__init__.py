"""The simulation: that it is the same each time, sees what is wrong, and shrinks it."""
