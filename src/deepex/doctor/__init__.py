"""What this machine is, how fast it is and what would slow training here. It trains nothing and needs no task."""
