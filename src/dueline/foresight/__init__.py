"""What the history says of the next hours: simulation, plans, forecasts. Pure functions of it."""
