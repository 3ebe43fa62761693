"""All-reduce, steps and learning of every strategy beside what people use today."""
