"""The fabric of ranks on one host: they average in memory that all of them see."""
