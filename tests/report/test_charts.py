import numpy as np
import plotly.graph_objects as go
import pytest
from report.synthetic import estimate, states

from spookax.report.charts import (
    band_chart,
    convergence_chart,
    correlation_chart,
    innovation_chart,
    share_chart,
    signal_chart,
)
from spookax.report.content import bound_hit, innovation_rows, normalised_innovations
from spookax.report.numbers import levels, measured, number, percent, unit, with_sd
from spookax.report.signals import Signal, signals
from spookax.report.thin import thin


def a_signal(n=1000, **values) -> Signal:
    time = np.arange(n) / 100
    held = {"measured": np.sin(time), "estimated": np.sin(time) + 0.1, "open_loop": None, "innovation": None}
    return Signal("encoder", "", "rad", time, **(held | values))


def drawn(figure, name, panel="y") -> tuple[np.ndarray, np.ndarray]:
    (trace,) = [t for t in figure["data"] if t["name"] == name and t["yaxis"] == panel]
    return np.array(trace["x"], dtype=float), np.array(trace["y"], dtype=float)


@pytest.mark.parametrize("n", [4001, 5000, 99_999, 1_000_000])
def test_thinning_keeps_peaks_ends_and_the_limit(rng, n):
    time, values = np.arange(n) * 1e-3, rng.standard_normal(n)
    peaks = rng.choice(n, 20, replace=False)
    values[peaks] += np.where(np.arange(20) % 2, 1e3, -1e3)
    t, v = thin(time, values)
    assert v.size <= 4000
    assert np.all(np.diff(t) > 0)
    assert (t[0], t[-1]) == (time[0], time[-1])
    assert set(values[[values.argmin(), values.argmax()]]) <= set(v)
    for stretch in np.array_split(np.arange(n), 50):  # the envelope of each fiftieth is the same
        inside = (t >= time[stretch[0]]) & (t <= time[stretch[-1]])
        if abs(values[stretch]).max() > 500:
            assert abs(v[inside]).max() == abs(values[stretch]).max()


def test_thinning_leaves_short_curves_and_keeps_gaps():
    time, values = np.arange(4000.0), np.sin(np.arange(4000.0))
    np.testing.assert_array_equal(thin(time, values)[1], values)
    time, values = np.arange(40_000.0), np.sin(np.arange(40_000.0))
    values[10_000:12_000] = np.nan
    values[30_000] = np.inf
    t, v = thin(time, values)
    assert np.isnan(v[(t >= 10_050) & (t < 11_950)]).all()
    assert np.isfinite(v[(t < 9_950) | (t > 12_050)]).all()


def test_residuals_are_measured_minus_the_others():
    others = {"estimated": np.cos(np.arange(1000) / 99), "open loop": np.cos(np.arange(1000) / 98)}
    signal = a_signal(estimated=others["estimated"], open_loop=others["open loop"])
    figure = signal_chart(signal)
    for name, values in others.items():
        np.testing.assert_allclose(drawn(figure, name)[1], values, rtol=1e-5)
        np.testing.assert_allclose(drawn(figure, name, "y2")[1], signal.measured - values, atol=1e-5)
    assert figure["layout"]["xaxis2"]["matches"] == "x"
    assert figure["layout"]["yaxis"]["title"]["text"] == "rad"


def test_few_samples_are_points_and_gaps_stay_gaps():
    values = np.full(1000, np.nan)
    values[::10] = 1.0
    figure = signal_chart(a_signal(measured=values))
    assert {trace["mode"] for trace in figure["data"] if trace["name"] == "measured"} == {"markers"}
    gap = np.sin(np.arange(1000) / 100)
    gap[300:400] = np.nan
    x, y = drawn(signal_chart(a_signal(measured=gap)), "measured")
    np.testing.assert_array_equal(np.isnan(y), (x >= 3.0) & (x < 3.995))


def test_signals_are_split_into_their_components():
    found = list(signals("train", estimate()["runs"], states()))
    assert [signal.label for signal in found] == ["arm_encoder", "tip x", "tip y", "tip z"]
    assert [signal.unit for signal in found] == ["rad", "m", "m", "m"]
    np.testing.assert_array_equal(found[2].open_loop, states()["train/open_loop/tip"][:, 1])


def test_signals_without_an_estimate_are_drawn_as_measured():
    held = {"r/time": np.arange(5.0), "r/measured/s": np.arange(5.0)}
    (signal,) = signals("r", {}, held)
    assert [trace["name"] for trace in signal_chart(signal)["data"]] == ["measured"]


def test_shares_have_the_same_points_and_keep_their_changes(rng):
    """Areas on top of each other, of long recordings, too."""
    n = 20_000
    time, a = np.arange(n) * 1e-3, np.clip(np.repeat(rng.uniform(size=20), 1000), 0.05, 0.95)
    a[7_777] = 1.0
    figure = share_chart("modes", time, {"a": a, "b": 0.7 * (1 - a), "c": 0.3 * (1 - a)})
    curves = [drawn(figure, name) for name in "abc"]
    assert all(np.array_equal(x, curves[0][0]) for x, _ in curves)
    assert len(curves[0][0]) <= 4000
    np.testing.assert_allclose(sum(y for _, y in curves), 1.0, atol=2e-6)
    assert time[7_777] in curves[0][0]


def test_a_band_that_is_wide_for_a_moment_does_not_set_the_scale():
    time, value, sd = np.arange(1000.0), np.sin(np.arange(1000) / 50), np.full(1000, 0.01)
    sd[:5] = 100.0
    low, high = band_chart("pin", "rad", time, value, sd)["layout"]["yaxis"]["range"]
    assert -1.2 < low < -1 < 1 < high < 1.2
    flat = band_chart("pin", "rad", time, np.zeros(1000), np.zeros(1000))
    assert flat["layout"]["yaxis"]["range"] == [-1, 1]


def test_a_positive_cost_is_drawn_as_it_is():
    figure = convergence_chart([{"iteration": i, "cost": 10.0**-i, "damping": 0.1} for i in range(4)])
    assert figure is not None
    np.testing.assert_allclose(drawn(figure, "cost")[1], [1, 0.1, 0.01, 0.001])
    assert figure["layout"]["yaxis"]["type"] == figure["layout"]["yaxis2"]["type"] == "log"


def test_a_negative_cost_is_drawn_above_its_lowest():
    figure = convergence_chart([{"iteration": i, "cost": cost} for i, cost in enumerate((5.0, -3.0, -3.5))])
    assert figure is not None
    x, y = drawn(figure, "cost above the lowest")
    np.testing.assert_allclose(y, [8.5, 0.5, np.nan])
    np.testing.assert_array_equal(x, [0, 1, 2])


def test_fits_that_follow_each_other_are_drawn_side_by_side():
    lines = [(0, 9.0), (1, 4.0), (2, 3.0), (0, 8.0), (1, 2.0), (0, 1.0)]
    figure = convergence_chart([{"iteration": i, "cost": cost, "damping": 0.1} for i, cost in lines])
    assert figure is not None
    x, y = drawn(figure, "cost")
    np.testing.assert_array_equal(x, [0, 1, 2, np.nan, 3, 4, np.nan, 5])
    np.testing.assert_allclose(y, [9, 4, 3, np.nan, 8, 2, np.nan, 1])


def test_iterations_without_a_cost_are_left_out():
    assert convergence_chart([{"iteration": 0, "cost": np.nan}]) is None
    assert convergence_chart([]) is None


def test_the_correlation_map_has_the_matrix_and_fixed_colours():
    figure = correlation_chart(["a", "b"], [[1.0, -0.5], [-0.5, 1.0]])
    assert figure is not None
    (heat,) = figure["data"]
    assert heat["z"] == [[1.0, -0.5], [-0.5, 1.0]]
    assert (heat["zmin"], heat["zmax"]) == (-1, 1)
    assert correlation_chart([], []) is None
    assert correlation_chart(["a"], [[None]]) is None


def test_normal_innovations_fill_the_normal_density(rng):
    """Whatever their scale and offset, and with a few outliers."""
    innovation = 3.0 + 0.01 * rng.standard_normal(200_000)
    innovation[:50] = 1e3
    samples = normalised_innovations({"run": [a_signal(innovation=innovation)]})
    figure = innovation_chart(samples)
    assert figure is not None
    go.Figure(figure)
    bars, line = figure["data"]
    x = np.array(bars["x"])
    np.testing.assert_allclose(bars["y"], np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi), atol=0.02)
    assert line["name"] == "normal"
    (row,) = innovation_rows({"run": [a_signal(innovation=innovation[50:])]})
    assert row.rms == "3"
    assert abs(float(row.correlation)) <= 0.01
    assert 0.2 < float(row.outliers.removesuffix(" %")) < 0.35


def test_correlated_innovations_are_seen(rng):
    walk = np.convolve(rng.standard_normal(10_000), [1.0, 1.0])  # neighbours share half their variance
    (row,) = innovation_rows({"run": [a_signal(innovation=walk)]})
    assert float(row.correlation) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("innovation", [None, np.zeros(0), np.full(10, np.nan), np.ones(10)])
def test_innovations_that_say_nothing_are_left_out(innovation):
    runs = {"run": [a_signal(innovation=innovation)]}
    assert innovation_chart(normalised_innovations(runs)) is None
    assert innovation_rows(runs) == []


@pytest.mark.parametrize(
    ("value", "lower", "upper", "side"),
    [
        (0.0, 0.0, 1.0, "lower"),
        (1.0, 0.0, 1.0, "upper"),
        (1e-6, 1e-6, 1.0, "lower"),
        (1.001e-6, 1e-6, 1.0, ""),
        (1e-9, 0.0, 1.0, ""),
        (0.5, 0.0, 1.0, ""),
        (-2.0, -2.0, None, "lower"),
        (0.0, None, None, ""),
        (0.0, -np.inf, np.inf, ""),
        (np.nan, 0.0, 1.0, ""),
    ],
)
def test_bounds_are_recognised(value, lower, upper, side):
    assert bound_hit({"value": value, "lower": lower, "upper": upper}) == side


def test_numbers_read_well():
    assert number(0.00012345678) == "0.0001235"
    assert number(float("nan")) == number(None) == "–"
    assert number(float("-inf")) == "−∞"
    assert measured(1.23456789, 0.00012) == "1.23457"
    assert measured(1.23456789, None) == "1.235"
    assert measured(0.0, 1.0) == "0"
    assert with_sd(1.23456789, 0.00012) == "1.23457 ± 0.00012"
    assert with_sd(0.5, None) == "0.5"
    assert levels([1.0, 1.0, 2.0]) == "1, 2"
    assert levels(1.0) == "1"
    assert percent(0.04567) == "4.57 %"
    assert unit("kg m^2") == "kg m²"
    assert unit("1") == unit(None) == ""
