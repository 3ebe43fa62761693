"""Universes of cold dark matter: their physics, a particle mesh, and what it is held against."""
