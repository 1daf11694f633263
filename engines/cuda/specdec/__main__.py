"""`python -m specdec`: the same commands as `specdec`."""

from specdec.cli import main

if __name__ == "__main__":
    main(prog_name="specdec")
