"""Steps, graphs and their state."""
