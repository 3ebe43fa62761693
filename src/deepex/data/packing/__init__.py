"""Any source into one packed data set, plain HDF5, and packed data sets as sources."""
