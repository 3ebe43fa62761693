"""What a run's recipe.toml says, for those who show it: plain values. No task is built and no code is loaded for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepex.config import read_toml
from deepex.errors import RunFolderError
from deepex.record.folder import RunFolder
from deepex.reference import is_reference, shorten


@dataclass(frozen=True, kw_only=True)
class ShownRecipe:
    """The keys of a recipe that pages and live views name; `code` is where a task of a user's own comes from."""

    task: str
    code: str
    sync: str
    precision: str
    layout: str
    num_epochs: int
    num_ranks: int
    batch: int
    optimiser: str
    learning_rate: float
    schedule: str

    @property
    def is_own_loop(self) -> bool:
        """Whether a user's own loop trains: its code is a script, not a name in a file."""
        return bool(self.code) and not is_reference(self.code)

    @classmethod
    def parse(cls, text: str, folder: RunFolder) -> "ShownRecipe":
        """The recipe in the text of a recipe.toml."""
        tree = read_toml(text, str(folder.recipe))
        try:
            return cls(
                task=str(tree["task"]["name"]),
                code=str(tree.get("code", "")),
                sync=shorten(str(tree["sync"])),
                precision=str(tree["precision"]),
                layout=str(_look(tree, "layout", "auto")),
                num_epochs=int(tree["stop"]["epochs"]),
                num_ranks=int(tree["world"]["ranks"]),
                batch=int(_look(tree, "data.batch", 0)),
                optimiser=str(_look(tree, "optimiser.name", "")),
                learning_rate=float(_look(tree, "optimiser.learning_rate", 0.0)),
                schedule=str(_look(tree, "schedule.name", "constant")),
            )
        except (KeyError, TypeError, ValueError) as error:
            what = f"has no {error.args[0]}" if isinstance(error, KeyError) else f"does not hold together: {error}"
            raise RunFolderError(
                f"{folder.path} is not a run directory: its recipe.toml {what}, as those that deepex run writes have. "
                "Give a run directory, as in runs/NAME."
            ) from error


def read_shown_recipe(folder: RunFolder) -> ShownRecipe:
    """The recipe of a run directory."""
    try:
        text = folder.recipe.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RunFolderError(f"{folder.recipe} can't be read: {error}. Bring it back from a copy.") from error
    return ShownRecipe.parse(text, folder)


def _look(tree: Mapping[str, Any], key: str, default: Any) -> Any:
    """A dotted key of nested mappings."""
    found: Any = tree
    for part in key.split("."):
        found = found.get(part, default) if isinstance(found, Mapping) else default
    return found
