"""The command line as a module, for where the folder of console scripts is on no path."""

from .cli import main

if __name__ == "__main__":
    main()
