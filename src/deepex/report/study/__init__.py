"""The page of a study, or of several, made of the files of their directories alone."""
