"""Plants small faults in the code, and reports which of them the tests notice."""
