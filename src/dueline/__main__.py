"""`python -m dueline`: the command line."""

from dueline.cli import main

if __name__ == "__main__":
    main()
