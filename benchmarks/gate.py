"""Whether steps have become slower: their times over MuJoCo's in the same run, against ratios that are kept.

Processor times are taken in turn and the least of each counts, so that what else a computer does counts little; a ratio
may be `FACTOR` times the kept one, and one that is above it is taken further times before it counts. With `gate.write`
the ratios of this run are kept (`baseline.json`): after a change that is meant to cost or save time.
"""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import spookax as sx

from . import peer
from .measure import Row, compile_now, row, timed
from .mechanisms import Mechanism, four_bar, furuta, swinging

BASELINE = Path(__file__).with_name("baseline.json")
FACTOR = 2.5
ROUNDS, MOST_ROUNDS = 6, 18  # of both times in turn; the latter where the ratio is above what it may be
BUDGET = 0.3  # for the repetitions of one call in a round [s]


def run(part: str = "") -> list[Row]:
    """Rows of all ratios. Ends the program with status 1 where one is above what it may be.

    `part`: "write" to keep the ratios.
    """
    if not peer.mujoco():
        raise SystemExit("the ratios are over MuJoCo's times, and it is not installed: pip install mujoco")
    kept = json.loads(BASELINE.read_text("utf-8"))
    mechanisms = furuta(), four_bar(), swinging(4), swinging(16), swinging(64)
    found = {m.name: _ratio(m, FACTOR * kept.get(m.name, 0.0)) for m in mechanisms}
    if part == "write":
        kept = {name: round(r, 2) for name, r in found.items()}
        BASELINE.write_text(json.dumps(kept, indent=2) + "\n", "utf-8")
    if slower := slower_than(kept, found):
        raise SystemExit("\n".join(slower))
    return [row(name, f"step over MuJoCo's; {kept[name]:g} is kept", r, "") for name, r in found.items()]


def slower_than(kept: dict[str, float], found: dict[str, float]) -> list[str]:
    """A sentence for every ratio above `FACTOR` times the kept one, or of which none is kept."""
    return [
        f"{name}: a step takes {r:.2f} times as long as MuJoCo's, and {FACTOR:g} times {kept[name]:g} is allowed"
        if name in kept
        else f"{name}: no ratio is kept; run `python -m benchmarks gate.write`"
        for name, r in found.items()
        if r > FACTOR * kept.get(name, 0.0)
    ]


def _ratio(mechanism: Mechanism, allowed: float) -> float:
    """Processor time of a rollout over that of MuJoCo's, each the least of several rounds; more of them while the ratio
    is not `allowed`.
    """
    system, params, state = mechanism.load()
    controls = jnp.asarray(mechanism.controls(1, mechanism.steps)[0])
    compiled = compile_now(lambda p, s, c: sx.rollout(system, p, s, c, throw=False), params, state, controls)
    assert int(compiled.call(params, state, controls).failed_step) < 0, f"{mechanism.name}: a step failed"
    mujoco, inputs = peer.Mujoco.of(mechanism), np.asarray(controls)[None]
    ours = theirs = np.inf
    for k in range(MOST_ROUNDS):
        if k >= ROUNDS and ours <= allowed * theirs:
            break
        ours = min(ours, timed(lambda: compiled.call(params, state, controls), BUDGET).processor)
        theirs = min(theirs, timed(lambda: mujoco.rollout(inputs), BUDGET).processor)
    return ours / theirs
