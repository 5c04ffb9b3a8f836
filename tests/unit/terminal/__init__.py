"""Progress bars on terminals, lines elsewhere."""
