"""The script that `spark-submit` runs.

It is in a package without other modules: Python puts the folder of a script first on its path, and
a module of dueline has the name of a standard module.
"""

from dueline.cli import main

if __name__ == "__main__":
    main()
