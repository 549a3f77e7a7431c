"""`python -m reproduction`: the paper's tables and figures, from committed results or new ones."""

from reproduction.command import main

if __name__ == "__main__":
    main()
