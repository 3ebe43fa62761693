"""Prove a scaling study: `make study` runs one of the protein task, checks it by hand, kills another, opens the page.

It prints how long the study took, S_p and S_L beside the same worked out anew from the runs' metrics.jsonl, what random
kills of a smaller study changed (nothing may), and size and opening time of the page in a real browser. It ends with 1
if something differs. Started again, it goes on with the study that is there.
"""

import argparse
import json
import math
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from deepex.record.folder import RunFolder
from deepex.record.study_rows import read_study

DEEPEX = [sys.executable, "-m", "deepex"]
STUDY = ["protein", "--ranks", "1,2", "--sync", "allreduce,local:epoch", "--repeats", "2"]
SMALL = ["protein", "--ranks", "1,2", "--sync", "allreduce,local:epoch", "--repeats", "1", "stop.epochs=4"]
LONGEST_SECONDS = 60.0
FLAGS = "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
DRAWN = """
    const figures = [...document.querySelectorAll(".figure")];
    return figures.length > 0 && figures.every(figure => figure.querySelector(".trace path"));
"""


def main() -> None:
    """Run all parts, print what they show, and end with 1 if something is wrong."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, default=Path("studies/proof"))
    arguments.add_argument("--kills", type=int, default=6)
    arguments.add_argument("--seed", type=int, default=0)
    asked = arguments.parse_args()
    problems = run_cells(asked.folder)
    problems += check_by_hand(asked.folder)
    problems += kill_at_random(asked.kills, random.Random(asked.seed))  # noqa: S311  # moments, not secrets
    problems += open_page(asked.folder / "report.html")
    print("all as it should be" if not problems else f"{len(problems)} problems: {'; '.join(problems)}")
    sys.exit(bool(problems))


def run_cells(folder: Path) -> list[str]:
    begun = monotonic()
    done = subprocess.run([*DEEPEX, "study", *STUDY, "--out", str(folder)], check=False)
    print(f"the study took {monotonic() - begun:.0f} s (600 allowed)", flush=True)
    return [] if done.returncode == 0 else [f"the study ended with {done.returncode}"]


def check_by_hand(folder: Path) -> list[str]:
    """S_p and S_L from metrics.jsonl alone, against the digits on the page."""
    outcome = read_study(RunFolder(folder))
    text = unescape(re.sub(r"<[^>]+>", " ", (folder / "report.html").read_text()))
    problems = []
    cutoffs = outcome.cutoffs
    alone = _read(folder, "1r_alone", cutoffs)
    for cell in outcome.cells:
        if cell.ranks == 1:
            continue
        runs = _read(folder, cell.name, cutoffs)
        found = {"S_p": _mean(run["seconds"] for run in alone) / _mean(run["seconds"] for run in runs)}
        for place, cutoff in enumerate(cutoffs):
            found[f"S_L at {cutoff:g}"] = _mean(run["times"][place] for run in alone) / _mean(
                run["times"][place] for run in runs
            )
        told = [cell.speedup, *(each.speedup for each in cell.cutoffs)]
        for (name, hand), given in zip(found.items(), told, strict=True):
            if math.isnan(hand):
                agrees = given is None
            else:
                agrees = given is not None and math.isclose(hand, given.value, rel_tol=1e-9)
                agrees = agrees and f"{hand:#.3g}" in text
            shown = "none" if given is None else f"{given.value:.6g}"
            print(f"{cell.name}: {name} is {hand:.6g} by hand, {shown} in study.json", flush=True)
            if not agrees:
                problems.append(f"{cell.name}'s {name} differs")
    return problems


def _read(folder: Path, cell: str, cutoffs: Sequence[float]) -> list[dict[str, Any]]:
    runs = []
    for path in sorted(folder.glob(f"runs/{cell}_seed*/metrics.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        ends = [0.0] + [row["seconds"] for row in rows]
        seconds = median(ends[place + 1] - ends[place] for place in range(len(rows)))
        epochs = [next((row["epoch"] for row in rows if row["value"] < cutoff), math.nan) for cutoff in cutoffs]
        runs.append({"seconds": seconds, "times": [seconds * number for number in epochs]})
    return runs


def _mean(values: Any) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def kill_at_random(kills: int, drawn: random.Random) -> list[str]:
    """A small study that was killed again and again against one that never was: cells, epochs and weights."""
    with TemporaryDirectory(prefix="deepex-study-") as made:
        whole, broken = Path(made) / "whole", Path(made) / "broken"
        subprocess.run([*DEEPEX, "study", *SMALL, "--out", str(whole), "--quiet"], check=True)
        command = [*DEEPEX, "study", *SMALL, "--out", str(broken), "--quiet"]
        finished: dict[str, int] = {}
        problems = []
        for number in range(kills):
            process = subprocess.Popen(command)
            sleep(drawn.uniform(3.0, LONGEST_SECONDS / 2))
            process.send_signal(signal.SIGKILL)
            process.wait()
            for path in broken.glob("runs/*/summary.json"):
                stamp = path.stat().st_mtime_ns
                if finished.setdefault(path.parent.name, stamp) != stamp:
                    problems.append(f"{path.parent.name} was run twice")
            print(f"kill {number + 1} of {kills}: {len(finished)} runs were done", flush=True)
        subprocess.run(command, check=True)
        tables = [_table(path) for path in (whole, broken)]
        same = tables[0] == tables[1]
        print(
            f"killed {kills} times: the table is {'the same' if same else 'another'}, {len(tables[1])} runs", flush=True
        )
        shutil.rmtree(made, ignore_errors=True)
    return problems + ([] if same else ["the killed study has another table"])


def _table(study: Path) -> dict[str, Any]:
    """What must not depend on kills: cells, epochs, quality and weights; clocks differ anyway."""
    found = {}
    for path in sorted(study.glob("runs/*/summary.json")):
        summary = json.loads(path.read_text())
        found[path.parent.name] = {
            key: summary[key] for key in ("epochs", "value", "epochs_to_target", "weights_sha256")
        }
    return found


def open_page(page: Path) -> list[str]:
    """Size, and seconds from the address to all figures drawn, the median of five."""
    options = ChromeOptions()
    for flag in FLAGS.split():
        options.add_argument(flag)
    driver = Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    seconds = []
    try:
        for _ in range(5):
            begun = monotonic()
            driver.get(page.resolve().as_uri())
            WebDriverWait(driver, 60, poll_frequency=0.02).until(lambda chrome: chrome.execute_script(DRAWN))
            seconds.append(monotonic() - begun)
    finally:
        driver.quit()
    megabytes = page.stat().st_size / 1e6
    spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
    print(f"the page has {megabytes:.2f} MB (6 allowed) and opens in {median(seconds):.2f} s ({spread}; 2 allowed)")
    return [] if megabytes < 6 and median(seconds) < 2 else ["the page is too large or too slow"]


if __name__ == "__main__":
    main()
