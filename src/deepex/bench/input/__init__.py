"""Samples a second of deepex's feed beside those of torch's DataLoader and webdataset."""
