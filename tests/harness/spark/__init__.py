"""What the tests on Spark share."""
