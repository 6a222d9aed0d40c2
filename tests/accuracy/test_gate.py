"""The gate of the benchmarks: what it lets pass and what it says."""

import json

from benchmarks import against
from benchmarks.gate import BASELINE, FACTOR, slower_than


def test_a_ratio_that_has_grown_too_much_or_is_new_is_named():
    kept = json.loads(BASELINE.read_text("utf-8"))
    assert kept
    assert not slower_than(kept, {name: FACTOR * ratio for name, ratio in kept.items()})
    name = next(iter(kept))
    (said,) = slower_than(kept, kept | {name: 2.1 * FACTOR / 2 * kept[name]})
    assert said.startswith(f"{name}: a step takes")
    assert "gate.write" in slower_than(kept, {"new": 1.0})[0]


def test_a_revision_beside_another_is_refused_by_name(tmp_path, monkeypatch):
    """Of both runs the best counts; times may not grow, and rates not fall, beyond the factor."""
    runs = iter([[4.0, 1e3], [4.3, 1.1e3], [5.0, 0.9e3], [4.6, 0.93e3]])  # before, now, before, now

    def rows(*_: object) -> list[dict[str, object]]:
        step, rate = next(runs)
        return [
            {"case": "arm", "quantity": "step", "unit": "us", "best": step},
            {"case": "arm", "quantity": "batch", "unit": "steps/s", "best": rate},
            {"case": "arm", "quantity": "beside another", "unit": "not installed"},
        ]

    monkeypatch.setattr(against, "_run", rows)
    found = against.compared(tmp_path, "steps", 2)
    assert [(line["before"], line["now"]) for line in found] == [(4.0, 4.3), (1e3, 1.1e3)]
    assert not against.slower_than(1.08, "steps", found)
    (said,) = against.slower_than(1.05, "steps", found)
    assert said.startswith("steps: arm, step: 1.07 times")
