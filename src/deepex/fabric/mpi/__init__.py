"""The fabric on the machine's own MPI, by mpi4py."""
