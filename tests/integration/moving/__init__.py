"""Stores that move to other databases while processes use them."""
