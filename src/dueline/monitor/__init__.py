"""What is good to be done now and then, by anybody: nothing waits for it."""
