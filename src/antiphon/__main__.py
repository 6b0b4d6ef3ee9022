"""`python -m antiphon`: the console script, for launchers that start modules."""

from antiphon.cli import main

# Worker processes import this module again.
if __name__ == "__main__":
    main()
