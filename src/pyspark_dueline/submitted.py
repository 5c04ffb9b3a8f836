"""What `spark-submit` runs.

A script beside no module of dueline's: the folder of a script comes first on its path, and one of
dueline's modules is called as one of Python's own.
"""

from dueline.cli import main

if __name__ == "__main__":
    main()
