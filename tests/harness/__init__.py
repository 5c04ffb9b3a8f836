"""What several packages of tests use."""
