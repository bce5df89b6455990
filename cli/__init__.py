"""The command line, ``zero-rename``: shows what is in a table, finishes jobs, repairs and maintains
it."""

__all__ = ["app", "main"]

try:
    from .main import app, main
except ModuleNotFoundError as error:
    _LACKING = (error.name or "").partition(".")[0]
    if _LACKING not in ("rich", "typer"):
        raise

    def main() -> None:
        """Run the console script if a module that the commands need is not installed: print a
        message and exit.

        :raises SystemExit: always.
        """
        import sys

        print(
            f"The command line needs {_LACKING}: pip install 'airflow-provider-zero-rename[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
