"""Recipes on records, in every order of their steps."""
