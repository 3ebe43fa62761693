"""The data sets of tasks: how each is made, found and opened."""
