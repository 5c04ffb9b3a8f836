"""Jobs, history and streams as data frames."""
