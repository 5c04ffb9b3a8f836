"""What is drawn on a terminal, by commands and by programs that wait."""
