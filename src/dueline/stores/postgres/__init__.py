"""The store in PostgreSQL (14 or later), by psycopg 3."""
