"""What readers share: finding files, their names and labels, arrays and grids in them."""
