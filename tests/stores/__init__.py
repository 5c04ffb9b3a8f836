"""The contract, on every store."""
