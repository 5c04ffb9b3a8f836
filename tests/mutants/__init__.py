"""Rules broken on purpose, each by one patch, and the tests that notice."""
