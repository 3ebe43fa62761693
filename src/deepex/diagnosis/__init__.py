"""From timings to causes, advice and a verdict in words. Pure functions; they know no loop and no files."""
