"""Hyperparameters of a friction force: their draws against a grid, the bands that count them, what a stop keeps."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from study.test_latent import simulated
from typer.testing import CliRunner

from spookax import find_force
from spookax._typing import Array
from spookax.cli import app
from spookax.scene import FileError
from spookax.study.latent import sampling, spread, switching_model
from spookax.study.latent.evidence import Maximum
from spookax.study.latent.fitting import along_axes, averaged, fitted
from spookax.study.latent.mechanism import Mechanism, Oscillator
from spookax.study.latent.record import Record
from spookax.study.latent.sampling import Draws, quality, sampled
from spookax.study.latent.unfinished import Unfinished


class Bent(eqx.Module):
    """A density that is not normal."""

    centre: Array

    def gradient(self, log):
        def cost(x):
            d = x - self.centre
            return 0.5 * (2.0 * d[0] ** 2 + d[0] * d[1] + d[1] ** 2) + 0.1 * jnp.sum(d**4)

        return jax.value_and_grad(cost)(log)


BENT = Bent(jnp.array([1.0, -1.0]))
COVARIANCE = np.linalg.inv(np.array([[2.0, 0.5], [0.5, 1.0]]))


def test_draws_are_those_of_the_density_however_often_they_are_begun():
    """Mean and standard deviation against a grid; a sampler that stops on the way goes on as if it had not."""
    pytest.importorskip("blackjax", reason="the extra `sampling`")
    draws, half = Draws.none(2), Draws.none(2)
    for number, draws in enumerate(sampled(BENT, np.array([1.0, -1.0]), COVARIANCE, 400)):
        if number == 25:  # it still adapts
            half = draws
    *_, again = sampled(BENT, np.array([1.0, -1.0]), COVARIANCE, 2, half)
    np.testing.assert_allclose(again.log, draws.log[:, :42], atol=1e-9)
    own = quality(draws)
    assert own.effective > 300
    assert own.rhat < 1.02
    side = np.linspace(-5, 5, 201)
    x = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    weight = np.exp(-np.asarray(jax.vmap(lambda x: BENT.gradient(x + BENT.centre)[0])(jnp.asarray(x))))
    sd = np.sqrt(weight @ x**2 / np.sum(weight))
    kept = draws.kept.reshape(-1, 2)
    error = sd / np.sqrt(own.effective)
    assert np.all(np.abs(np.mean(kept, axis=0) - [1.0, -1.0]) < 4 * error)
    assert np.all(np.abs(np.std(kept, axis=0) - sd) < 4 * error)
    assert np.all(np.abs(np.sqrt(np.diag(COVARIANCE)) - sd) > 0.08)  # a normal density would not do


def test_points_along_the_axes_have_the_moments(rng):
    root = rng.normal(size=(4, 4))
    points = along_axes(np.arange(4.0), root @ root.T)
    np.testing.assert_allclose(np.mean(points, axis=0), np.arange(4.0), atol=1e-12)
    np.testing.assert_allclose(np.cov(points.T, bias=True), root @ root.T, atol=1e-12)


def test_a_run_that_was_stopped_leaves_what_it_has(tmp_path):
    kept = Unfinished(tmp_path, "this study")
    with pytest.raises(FileError, match="nothing to resume from"):
        kept.read()
    kept.better(np.arange(4.0))
    kept.next_pass(np.array([0.1, 0.2]), np.arange(4.0) + 1)
    kept.settle(Maximum(np.arange(4.0) + 2, 5.0, 6, True), np.eye(4))
    kept.draws = Draws(np.ones((2, 3, 4)), np.ones((2, 5)))
    kept.write()
    again = Unfinished(tmp_path, "this study")
    again.read()
    assert again.best is not None
    assert again.draws is not None
    assert (again.passes, again.best[1:]) == (1, (5.0, 6, True))
    np.testing.assert_array_equal(again.total, [0.1, 0.2])
    np.testing.assert_array_equal(again.best.at, np.arange(4.0) + 2)
    np.testing.assert_array_equal(again.draws.log, kept.draws.log)
    with pytest.raises(FileError, match="another study"):
        Unfinished(tmp_path, "another").read()


SHORT = 160  # samples
MECHANISM = Oscillator(Mechanism(0.8, 2.0, 400.0))


def short(count: int, every: np.ndarray | None = None) -> Record:
    time, load, z = simulated(count, 6)
    y = z + 4e-6 * np.random.default_rng(0).normal(size=count)
    at = np.arange(count) if every is None else every
    h = float((time[at[-1]] - time[at[0]]) / (len(at) - 1))
    return Record("run", time[at], h, y[at, None], load[at, None], ("displacement",), "")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_draws_and_a_grid_over_a_real_evidence(monkeypatch):
    """Two hyperparameters of a short record, the others held by their prior. And: the evidence of a long record, which
    is filtered in pieces, is that of the whole; bands that count hyperparameters are wider."""
    pytest.importorskip("blackjax", reason="the extra `sampling`")
    found = fitted([short(SHORT)], MECHANISM, 2, None, lambda _: None)
    narrow = jnp.array([0.7, 1e-4, 0.5, 1e-4])
    held = eqx.tree_at(lambda p: (p.prior, p.prior_sd), found.posterior, (jnp.asarray(found.log), narrow))
    covariance = np.diag(np.asarray(narrow) ** 2 * [0.1, 1.0, 0.1, 1.0])
    *_, draws = sampled(held, found.log, covariance, 100)
    own, kept = quality(draws), draws.kept.reshape(-1, 4)[:, [0, 2]]
    assert own.effective > 25
    middle, reach = np.mean(kept, axis=0), 5.0 * np.std(kept, axis=0)
    sides = [np.linspace(-r, r, 13) + c for c, r in zip(middle, reach, strict=True)]
    x = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, 2)
    every = [held.gradient(jnp.asarray([a, found.log[1], b, found.log[3]]))[0] for a, b in x]
    weight = np.exp(np.min(every) - np.array(every))
    weight /= np.sum(weight)
    mean = weight @ x
    sd = np.sqrt(weight @ (x - mean) ** 2)
    assert np.all(np.abs(middle - mean) < 4 * sd / np.sqrt(own.effective))
    assert np.all(np.abs(np.std(kept, axis=0) / sd - 1) < 4 / np.sqrt(own.effective))

    pieces = found.posterior.gradient(jnp.asarray(found.log))
    monkeypatch.setattr(switching_model, "_PIECE", SHORT)
    whole = jax.jit(lambda log: found.posterior.gradient(log))(jnp.asarray(found.log))
    np.testing.assert_allclose(pieces[0], whole[0], rtol=1e-10)
    np.testing.assert_allclose(pieces[1], whole[1], rtol=1e-6, atol=1e-6)

    [wide] = averaged(found, along_axes(found.log, found.covariance), lambda _: None)
    assert np.mean(wide.sd[:, 2] ** 2) > np.mean(found.forces[0].sd[:, 2] ** 2)
    np.testing.assert_allclose(np.sum(wide.probability, axis=1), 1.0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_force_at_stamps_that_are_not_equal():
    """A third of the samples of an even record left out at random: the force is that of the whole within the bands, and
    nearly the same but where sticking begins or ends, which a sample that is missing may have told."""
    rng = np.random.default_rng(1)
    every = np.sort(rng.choice(1000, 667, replace=False))
    whole = fitted([short(1000)], MECHANISM, 2, None, lambda _: None).forces[0]
    record = short(1000, every)
    assert not record.even
    part = fitted([record], MECHANISM, 2, None, lambda _: None).forces[0]
    apart = part.x[:, 2] - whole.x[every, 2]
    near = np.sort(apart**2)[: round(0.95 * len(apart))]
    assert np.mean(near) < 0.005 * np.var(whole.x[:, 2])
    assert np.mean(np.abs(apart) < 2 * np.hypot(part.sd[:, 2], whole.sd[every, 2])) > 0.95


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_that_samples_is_stopped_twice_and_goes_on(tmp_path, monkeypatch):
    """In the search and among the draws; what is asked of the sampler is in the folder at last.

    The record is as long as that of the test above, whose programs serve it.
    """
    pytest.importorskip("blackjax", reason="the extra `sampling`")
    for module in (sampling, spread):
        monkeypatch.setattr(module, "ADAPTED", 8)
    time, load, z = simulated(SHORT, 6)
    y = z + 4e-6 * np.random.default_rng(0).normal(size=SHORT)
    rows = "\n".join(f"{a:.5f},{b:.7f},{c:.9f}" for a, b, c in zip(time, load, y, strict=True))
    (tmp_path / "run.csv").write_text(f"t [s],F [N],x [m]\n{rows}\n", encoding="utf-8")
    study = tmp_path / "study.yaml"
    study.write_text(
        """
spookax: 1
recordings: [{file: run.csv, time: t, inputs: {force: F}, sensors: {displacement: x}}]
latent: {mass: 0.8, damping: 2.0, stiffness: 408.0, correct: [stiffness], components: 2, hyperparameters: sample,
  draws: 20, law: coulomb}
""",
        encoding="utf-8",
    )
    out = tmp_path / "out"

    def stop_at(text: str):
        def report(told: str) -> None:
            if text in told:
                raise KeyboardInterrupt

        return report

    with pytest.raises(KeyboardInterrupt):
        find_force(study, stop_at("evaluation 6,"), keep=out)
    with pytest.raises(KeyboardInterrupt):
        find_force(study, stop_at("draw 20 of 36"), keep=out, resume=True)
    told = CliRunner().invoke(app, ["latent", str(study), "--out", str(out), "--resume", "--quiet"])
    assert told.exit_code == 0, told.output
    assert not (out / "unfinished.npz").exists()
    content = json.loads((out / "latent.json").read_text(encoding="utf-8"))
    stiffness = content["mechanism"]["numbers"]["stiffness"]
    assert stiffness["used"] == pytest.approx(400.0, abs=4 * stiffness["sd"] + 1.0)
    assert content["settings"]["hyperparameters"] == "sample"
    with np.load(out / "states.npz") as states:
        drawn = states["hyperparameters/noise"]
    assert drawn.shape == (2, 10)
    page = (out / "latent.html").read_text(encoding="utf-8")
    assert "draws of a sampler" in page
    assert "The draws of the hyperparameters are worth only" in page  # 20 tell little
