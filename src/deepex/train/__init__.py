"""Training: a task's protocol, a recipe, one step, one loop. It knows no task by name and reads no environment."""
