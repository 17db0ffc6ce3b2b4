"""`python -m local`."""

from local.cli import app

if __name__ == "__main__":
    app(prog_name="python -m local")
