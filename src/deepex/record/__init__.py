"""What a run leaves behind: phases, provenance, progress, the run directory. It changes nothing in the training."""
