"""The public names, as a type checker sees them."""
