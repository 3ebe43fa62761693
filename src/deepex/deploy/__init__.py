"""What comes after training: the model back as a module, and its weights as a file."""
