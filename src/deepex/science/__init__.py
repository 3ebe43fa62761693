"""Simulators that make real data. They know the physics, and nothing of files, tasks or training."""
