"""The command line: one thin file a command. Errors that a user can cure become one message and an exit code."""

from deepex.cli.app import main

__all__ = ["main"]
