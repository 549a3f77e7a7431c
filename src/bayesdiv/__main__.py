"""`python -m bayesdiv` is the command `bayesdiv`."""

from bayesdiv.app.cli import main

if __name__ == "__main__":
    main()
