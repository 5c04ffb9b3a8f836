"""The demo on Spark."""
