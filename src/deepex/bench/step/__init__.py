"""Steps of deepex beside those of a plain loop, Lightning and Accelerate."""
