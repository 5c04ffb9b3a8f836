"""The command line, as it is used."""
