"""`python -m benchmarks.against REVISION NAME ...`: benchmarks of another revision and of this one, in turns.

Each run is a process of its own, the revision's in a checkout of it. Of every quantity that both report the best of the
rounds counts on both sides, so that what else a computer does counts little.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .measure import ROOT, Row, row, table

MORE, TIMES = ("steps/s", "solves/s"), ("ns", "us", "µs", "ms", "s")  # units of what is best large, and small
Found = dict[tuple[str, str, str], float]


def main() -> int:
    """Print the table of both; 1 if a ratio is beyond `--most`, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("revision", help="what git knows: a tag, a branch, a commit")
    parser.add_argument("names", nargs="+", metavar="NAME", help="benchmarks, as of `python -m benchmarks --list`")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (3)")
    parser.add_argument("--most", type=float, default=math.inf, help="how much slower it may be, 1.05 for 5 %% (any)")
    arguments = parser.parse_args()
    slower: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "revision"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", other, arguments.revision], check=True)
        try:
            for name in arguments.names:
                rows = compared(other, name, arguments.rounds)
                print(f"\n{name}\n{table(rows)}", flush=True)
                slower += slower_than(arguments.most, name, rows)
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", other], check=True)
    print("\n".join(slower))
    return 1 if slower else 0


def slower_than(most: float, name: str, rows: list[Row]) -> list[str]:
    """A sentence for every quantity that is worse than before by more than this factor."""
    return [
        f"{name}: {line['case']}, {line['quantity']}: {ratio:.3g} times the one before, {most:g} is allowed"
        for line in rows
        if isinstance(ratio := line["ratio"], float) and (1 / ratio if line["unit"] in MORE else ratio) > most
    ]


def compared(other: Path, name: str, rounds: int) -> list[Row]:
    """Rows of the quantities that both sides report: before, now, and now over before."""
    before: Found = {}
    now: Found = {}
    for _ in range(rounds):
        for root, found in ((other, before), (ROOT, now)):
            _merge(found, _run(root, name))
    rows = []
    for key in before:
        if key in now and before[key] > 0:
            case, quantity, unit = key
            line = row(case, quantity, now[key], unit, over=before[key], to="before")
            rows.append({"case": case, "quantity": quantity, "before": before[key], "now": now[key]} | _ends(line))
    return rows


def _ends(line: Row) -> Row:
    return {name: line[name] for name in ("unit", "ratio")}


def _run(root: Path, name: str) -> list[Row]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    command = [sys.executable, "-m", "benchmarks", name]
    subprocess.run(command, cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL)
    return json.loads((root / f"build/benchmarks/{name}.json").read_text("utf-8"))["rows"]


def _merge(found: Found, rows: list[Row]) -> None:
    for line in rows:
        unit, best = str(line["unit"]), line.get("best")  # a peer that is not installed has none
        if isinstance(best, float) and unit in (*MORE, *TIMES):
            key = str(line["case"]), str(line["quantity"]), unit
            found[key] = (max if unit in MORE else min)(best, found.get(key, best))


if __name__ == "__main__":
    sys.exit(main())
