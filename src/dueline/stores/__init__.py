"""One package for each store, and modules that stores share."""
