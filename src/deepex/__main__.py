"""`python -m deepex` is the same as `deepex`."""

from deepex.cli import main

main()
