"""Looking at a data set before it costs anything: damage, duplicates, leakage, a contact sheet."""
