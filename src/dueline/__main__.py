"""`python -m dueline`: the command line."""

import gc

# What a command loads stays until it ends: it is not looked through for garbage on the way.
gc.set_threshold(20_000)

from dueline.cli import main

if __name__ == "__main__":
    main()
