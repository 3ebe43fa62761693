"""Runs and studies followed live in a terminal, from their files alone."""
