"""How a step computes: layout and precision, what a step costs, and what of it the framework takes."""
