"""The page of a run, made of the files of its directory alone."""
