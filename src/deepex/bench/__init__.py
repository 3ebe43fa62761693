"""Benchmarks that compare deepex with what people use today, in one run, as ratios."""
