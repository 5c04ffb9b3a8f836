"""Sessions, Java, options and errors that the other parts of Spark use."""
