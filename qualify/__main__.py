"""`python -m qualify` is `qualify`."""

from qualify.cli import main

if __name__ == "__main__":
    main()
