"""What travels when gradients or changes of weights are averaged: one compressor a file."""
