"""What is refused: bad input, bad files."""
