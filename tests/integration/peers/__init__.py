"""Programs with other libraries of the kind, beside their ports."""
