"""`python -m bayesdiv` is the command `bayesdiv`."""

from bayesdiv.cli import main

if __name__ == "__main__":
    main()
