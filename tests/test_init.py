import deepex


def test_the_public_names_are_exactly_these() -> None:
    assert deepex.__all__ == [
        "ArrayTask",
        "DeepexError",
        "Loss",
        "Recipe",
        "Run",
        "Study",
        "Tally",
        "Target",
        "Task",
        "build_recipe",
        "resume_run",
        "run",
        "run_study",
    ]
    assert all(hasattr(deepex, name) for name in deepex.__all__)
