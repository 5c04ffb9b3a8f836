"""Tests that several test modules run: on other stores, or against mutants."""
