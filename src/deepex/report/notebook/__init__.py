"""Runs and studies in the output of a notebook's cell: followed live, and as they show themselves."""
