"""What README shows is what happens. What holds for all pages is in tests/docs."""

from pathlib import Path

from tests.docs.pages import README, run_page


def test_the_example_with_one_s_own_module_runs_as_printed(tmp_path: Path) -> None:
    done = run_page(README, tmp_path)
    assert done.returncode == 0, done.stderr
    value, page = done.stdout.splitlines()[-1].split()
    assert float(value) < 0.001
    assert (tmp_path / page).is_file()


def test_the_first_screen_names_the_two_commands() -> None:
    first_screen = README.read_text()[:1000]
    assert "make train" in first_screen
    assert "make test" in first_screen


def test_readme_is_short() -> None:
    assert len(README.read_text().split()) <= 1200
