"""Kill loops on real processes."""
