"""The figures of a page drawn for print, and their numbers as CSV."""
