"""How much the tests notice: small changes of the code, drawn at random, each with the tests that mirror its file.

    python benchmarks/mutation.py --sample 60 --seed 0 --json benchmarks/mutation.json

A change is one operator, number or condition of one line: `<` becomes `<=`, `and` becomes `or`, 3 becomes 4, a
condition is turned round. It is noticed if a test fails. It works on a copy of the tree.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import local

TREE = Path(__file__).parents[1]
PACKAGE = Path("src/deepex")
LEFT_OUT = ("bench", "doctor", "cluster")  # they measure, or need a quiet machine
SECONDS, MOST_TEST_FILES = 240, 8
SWAPS = (
    ("<", "<="),
    (">", ">="),
    ("==", "!="),
    ("is", "is not"),
    ("in", "not in"),
    ("and", "or"),
    ("+", "-"),
    ("*", "/"),
)
OPERATORS = {**dict(SWAPS), **{after: before for before, after in SWAPS}, "//": "*", "%": "*"}


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One change: `before` becomes `after` at an offset of a file."""

    file: str
    line: int
    offset: int
    before: str
    after: str


def find_mutations(path: Path) -> Iterator[Mutation]:
    """All changes that a file offers."""
    text = (TREE / path).read_text()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(text)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    flags = {part for node in classes for decorator in node.decorator_list for part in ast.walk(decorator)}

    def offset(line: int, column: int) -> int:
        begin = starts[line - 1]
        return begin + len(text[begin : starts[line]].encode()[:column].decode())

    def change(node: ast.expr, begin: int, before: str, after: str) -> Mutation:
        return Mutation(file=str(path), line=node.lineno, offset=begin, before=before, after=after)

    for node in ast.walk(tree):
        if node in flags:  # frozen, kw_only: for whoever writes code
            continue
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            pair = node.left, node.comparators[0]
        elif isinstance(node, ast.BinOp):
            pair = node.left, node.right
        elif isinstance(node, ast.BoolOp):
            pair = node.values[0], node.values[1]
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            begin, end = (offset(node.lineno, column) for column in (node.col_offset, node.end_col_offset or 0))
            after = str(not node.value) if isinstance(node.value, bool) else f"({node.value!r} + 1)"
            yield change(node, begin, text[begin:end], after)
            continue
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            test = node.test
            begin, end = offset(test.lineno, test.col_offset), offset(test.end_lineno or 0, test.end_col_offset or 0)
            yield change(test, begin, text[begin:end], f"(not ({text[begin:end]}))")
            continue
        else:
            continue
        begin = offset(pair[0].end_lineno or 0, pair[0].end_col_offset or 0)
        between = text[begin : offset(pair[1].lineno, pair[1].col_offset)]
        found = re.search("|".join(sorted(map(re.escape, OPERATORS), key=len, reverse=True)), between)
        if found and "#" not in between and not isinstance(getattr(node, "op", None), ast.BitOr | ast.Pow):
            yield change(pair[0], begin + found.start(), found[0], OPERATORS[found[0]])


def tests_of(file: str) -> Iterator[list[str]]:
    """What may notice a change of a file: its examples and the tests that mirror it; then those of its package."""
    inside = Path(file).relative_to(PACKAGE)
    folder = TREE / "tests" / inside.parent
    module = "deepex." + ".".join(inside.with_suffix("").parts)
    found = list(folder.glob(f"test_{inside.stem}*.py"))
    if not found and inside.parent.parts:
        found = list(folder.glob("test_*.py"))
    if not found:
        tests = (TREE / "tests").rglob("test_*.py")
        found = [
            path for path in tests if re.search(rf"{module}\b|{module.rpartition('.')[0]} import", path.read_text())
        ]
    yield [*(str(path.relative_to(TREE)) for path in sorted(found)[:MOST_TEST_FILES]), file]
    if inside.parent.parts:
        yield [f"tests/{inside.parts[0]}"]


def judge(mutation: Mutation, tree: Path) -> str:
    """`noticed`, `timed out` or `survived`."""
    path = tree / mutation.file
    text = path.read_text()
    end = mutation.offset + len(mutation.before)
    assert text[mutation.offset : end] == mutation.before
    path.write_text(text[: mutation.offset] + mutation.after + text[end:])
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    try:
        for tests in tests_of(mutation.file):
            words = [*command, *tests]
            done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, timeout=SECONDS)
            if done.returncode in (1, 2):
                return "noticed"
    except subprocess.TimeoutExpired:
        return "timed out"
    finally:
        path.write_text(text)
    return "survived"


def main() -> None:
    """Draw, judge and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    files = [path.relative_to(TREE) for path in sorted((TREE / PACKAGE).rglob("*.py"))]
    files = [path for path in files if not any(part in LEFT_OUT for part in path.parts)]
    mutations = [mutation for path in files for mutation in find_mutations(path)]
    drawn = random.Random(asked.seed).sample(mutations, asked.sample)  # noqa: S311  # a sample, no secret
    print(f"{len(mutations)} changes of {len(files)} files; {len(drawn)} drawn with seed {asked.seed}", flush=True)
    own = local()

    with TemporaryDirectory(prefix="deepex-mutation-") as folder:

        def run(mutation: Mutation) -> str:
            if not hasattr(own, "tree"):
                own.tree = Path(folder) / str(id(own.__dict__))
                ignored = shutil.ignore_patterns(".venv", ".git", "runs", "studies", "*_cache", "__pycache__")
                shutil.copytree(TREE, own.tree, ignore=ignored)
            verdict = judge(mutation, own.tree)
            place = f"{mutation.file}:{mutation.line}"
            print(f"{verdict:9}  {place}  {mutation.before!r} -> {mutation.after!r}", flush=True)
            return verdict

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            verdicts = list(pool.map(run, drawn))
    counts = {verdict: verdicts.count(verdict) for verdict in ("noticed", "survived", "timed out")}
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()), f"of {len(drawn)}")
    if asked.json:
        rows = [{**asdict(mutation), "verdict": verdict} for mutation, verdict in zip(drawn, verdicts, strict=True)]
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
