"""Programs of the project: servers for tests, and counts of its structure."""
