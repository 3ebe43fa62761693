"""What commands print and write: their tables, their files, and the options about them. It starts nothing."""
