"""What one elected worker does for a while, and what is so without it."""
