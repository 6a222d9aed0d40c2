"""The gate of the benchmarks: what it lets pass and what it says."""

import json

from benchmarks.gate import BASELINE, FACTOR, slower_than


def test_a_ratio_that_has_grown_too_much_or_is_new_is_named():
    kept = json.loads(BASELINE.read_text("utf-8"))
    assert kept
    assert not slower_than(kept, {name: FACTOR * ratio for name, ratio in kept.items()})
    name = next(iter(kept))
    (said,) = slower_than(kept, kept | {name: 2.1 * FACTOR / 2 * kept[name]})
    assert said.startswith(f"{name}: a step takes")
    assert "gate.write" in slower_than(kept, {"new": 1.0})[0]
