"""`python -m nearcast` is the command `nearcast`, also where scripts are not on the path."""

from nearcast.cli.main import main

if __name__ == "__main__":
    main()
