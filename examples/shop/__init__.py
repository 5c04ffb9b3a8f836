"""A busy shop, for the dashboard to show."""
