"""The command line, ``zero-rename``: what is open on a table, and how to settle it."""

__all__ = ["app", "main"]

try:
    from .main import app, main
except ModuleNotFoundError as error:
    _LACKING = (error.name or "").partition(".")[0]
    if _LACKING not in ("rich", "typer"):
        raise

    def main() -> None:
        """The console script, which is installed with the package whatever comes along.

        :raises SystemExit: what its commands need did not come along.
        """
        import sys

        print(
            f"The command line needs {_LACKING}: pip install 'airflow-provider-zero-rename[cli]'",
            file=sys.stderr,
        )
        sys.exit(2)
