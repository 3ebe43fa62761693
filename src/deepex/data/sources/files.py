"""Finding the files of a source, and their names: what every reader of many files shares."""

from pathlib import Path

from deepex.errors import DataError


def list_files(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The file at `path`, or all files below that folder with one of the endings, in the order of their names."""
    if not path.exists():
        raise DataError(f"there is nothing at {path}. Give a file or folder that exists.")
    if path.is_file():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name.lower().endswith(suffixes))
    if not files:
        raise DataError(f"{path} holds no file that ends with {', '.join(suffixes)}. Give the folder that does.")
    return files


def relative_name(file: Path, root: Path) -> str:
    """A file's name below the folder that a source was opened at: the same wherever that folder stands."""
    return file.name if file == root else file.relative_to(root).as_posix()
