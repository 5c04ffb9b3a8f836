"""One module a group of pages, each with its routes."""
