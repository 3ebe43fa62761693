"""Launchers, one a file: how each tells a process its rank. The table of them is in `deepex.launch.detect`."""
