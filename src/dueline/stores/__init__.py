"""Stores behind the waist, one a module."""
