"""Electron diffraction: crystals, the microscope, the multislice method, and what it is held against."""
