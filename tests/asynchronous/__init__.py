"""The asynchronous face."""
