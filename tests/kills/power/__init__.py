"""What a queue file holds when the power fails."""
