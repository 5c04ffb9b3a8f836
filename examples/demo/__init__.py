"""The demo: a real workload, a killed worker, and a proof that nothing was lost."""
