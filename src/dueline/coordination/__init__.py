"""Recipes on records."""
