"""History and dead-letter jobs as tables of a data lake."""
