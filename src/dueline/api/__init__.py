"""The application, its tasks and job handles, and how they reach a store."""
