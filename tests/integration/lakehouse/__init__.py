"""Neighbours of the pipeline, with their own packages: requirements/lakehouse.txt."""
