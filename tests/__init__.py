"""What dueline promises, checked."""
