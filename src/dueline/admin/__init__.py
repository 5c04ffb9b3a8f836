"""Read models for people and programs: search, health, store checks."""
