"""Steps of deepex beside what people run and what an expert could write by hand."""
