"""Jobs, lanes, settings, the store protocol, the clock and errors."""
