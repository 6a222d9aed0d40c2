"""The user's own rows with bounds: a rope that only pulls, a clutch that overruns, a brake that slips."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import STEPS, compiled, place, simulate

import spookax as sx
from spookax._results import STEP_RESULTS
from spookax.complementarity import BlockPivoting, Lemke
from spookax.constraints import AbstractBounded, AbstractUnilateral, prepare
from spookax.scene import Scene, SceneError
from spookax.stepping import half_kick_back, inverse_dynamics, rollout, state_from_joints, step
from spookax.system import build, locate

G = 9.81
LENGTH, J_IN, J_OUT, TORQUE, BRAKE = 0.4, 0.02, 0.05, 0.3, 0.12


@dataclasses.dataclass(frozen=True)
class Rope(AbstractUnilateral):
    """A rope between the origins of two bodies."""

    name: str
    bodies: tuple[str, ...] = ("world", "bob")
    num_rows: int = 1

    def defaults(self):
        return {"length": LENGTH}

    def gap(self, poses, values):
        d = poses[1].point(jnp.zeros(3)) - poses[0].point(jnp.zeros(3))
        return (values["length"] - jnp.sqrt(jnp.sum(d * d)))[None]


@dataclasses.dataclass(frozen=True)
class Clutch(AbstractBounded):
    """A freewheel about z: the first body drives the second forward, the second may overrun."""

    name: str
    bodies: tuple[str, ...] = ("in", "out")
    num_rows: int = 1

    def speed(self, poses, velocities, values):
        return (velocities[1][5] - velocities[0][5])[None]

    def limits(self, values):
        return jnp.zeros(1), jnp.full(1, jnp.inf)


@dataclasses.dataclass(frozen=True)
class Brake(AbstractBounded):
    """A brake about z, which slips beyond its torque."""

    name: str
    bodies: tuple[str, ...] = ("rotor",)
    num_rows: int = 1

    def defaults(self):
        return {"torque": BRAKE}

    def speed(self, poses, velocities, values):
        return velocities[0][5][None]

    def limits(self, values):
        return -values["torque"][None], values["torque"][None]


def mechanism(h=0.0025):
    hinge = {"type": "hinge", "axis": (0, 0, 1)}
    names, inertias = ("in", "out", "rotor"), (J_IN, J_OUT, J_OUT)
    scene = Scene(
        spookax=1,
        step=h,
        gravity=(0.0, 0.0, -G),
        bodies={"bob": {"mass": 0.5, "inertia": (0.01,) * 3}}
        | {n: {"mass": 1.0, "inertia": (J,) * 3} for n, J in zip(names, inertias, strict=True)},
        joints={n: {**hinge, "child": n} for n in names},
        motors={f"on_{n}": {"type": "torque", "joint": n} for n in names},
    )
    return build(scene, (Rope("rope"), Clutch("clutch"), Brake("brake")))


SYSTEM, PARAMS = mechanism()
FREE, TAUT = {"position": (0.1, 0.0, -0.1)}, {"position": (LENGTH * np.sin(0.5), 0.0, -LENGTH * np.cos(0.5))}
PUSHED = np.zeros((STEPS, 3))  # torques: the clutch's input forward and back, more and less than the brake holds
PUSHED[: STEPS // 2, 0], PUSHED[STEPS // 2 :, 0] = TORQUE, -TORQUE
PUSHED[: STEPS // 4, 2], PUSHED[STEPS // 4 :, 2] = 2 * BRAKE, 0.5 * BRAKE


@pytest.fixture(scope="module")
def run():
    return simulate(SYSTEM, PARAMS, place(SYSTEM, PARAMS, {}, {"bob": FREE}), PUSHED)


def test_a_slack_rope_does_nothing_and_a_taut_one_holds(run):
    """Free fall to the rope's end; then the rope takes the speed along it, and is never longer than it is."""
    h, distance = float(PARAMS.step), np.linalg.norm(run.r[:, 0], axis=1)
    free = int(np.argmax(run.row_forces[:, 0] > 0))
    np.testing.assert_allclose(run.r[:free, 0, 2], -0.1 - G * run.time[:free] ** 2 / 2, rtol=0, atol=1e-12)
    assert distance[free] < LENGTH < np.linalg.norm([0.1, -0.1 - G * (run.time[free] + h) ** 2 / 2])
    assert distance.max() < LENGTH + 1e-5
    assert np.all(run.row_forces[:, 0] >= 0)
    assert np.mean(run.row_forces[free:, 0] > 0) > 0.9


def test_a_taut_rope_is_a_pendulum():
    """Period of a swing of 0.5 rad: that of 2 pi sqrt(l / g) / agm(1, cos(a / 2)); energy is kept."""
    run = simulate(SYSTEM, PARAMS, place(SYSTEM, PARAMS, {}, {"bob": TAUT}))
    x = run.r[:, 0, 0]
    crossings = np.flatnonzero((x[:-1] > 0) & (x[1:] <= 0))
    at = crossings + x[crossings] / (x[crossings] - x[crossings + 1])
    a, b = 1.0, np.cos(0.25)
    for _ in range(5):
        a, b = (a + b) / 2, np.sqrt(a * b)
    assert len(crossings) >= 4
    assert np.mean(np.diff(at)) * float(PARAMS.step) == pytest.approx(2 * np.pi * np.sqrt(LENGTH / G) / a, rel=1e-4)
    energy = np.sum(run.v[:, 0] ** 2, axis=1) / 2 + G * run.r[:, 0, 2]
    assert np.abs(energy[1:-1] - energy[1]).max() < 1e-3 * G * LENGTH * (1 - np.cos(0.5))


def test_a_freewheel_drives_one_way(run):
    """Both turn as one while the input is driven; when it is braked the output goes on at the speed it has."""
    _, fast = run.joint("in")
    _, driven = run.joint("out")
    time, half = run.time, STEPS // 2
    together = TORQUE / (J_IN + J_OUT) * time[:half]
    np.testing.assert_allclose(fast[:half], together, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(driven[:half], together, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(driven[half + 1 :], driven[half + 1], rtol=1e-12)
    slope = np.diff(fast[half + 1 : -1]) / float(PARAMS.step)
    np.testing.assert_allclose(slope, -TORQUE / J_IN, rtol=1e-9)
    np.testing.assert_allclose(run.row_forces[1 : half - 1, 1], TORQUE * J_OUT / (J_IN + J_OUT), rtol=1e-6)


def test_a_brake_slips_beyond_its_torque_and_holds_below(run):
    _, rate = run.joint("rotor")
    quarter, h = STEPS // 4, float(PARAMS.step)
    np.testing.assert_allclose(np.diff(rate[1 : quarter - 1]) / h, BRAKE / J_OUT, rtol=1e-9)
    stops = quarter + int(np.ceil(2 * quarter))  # half the torque that brakes it remains to bring it to rest
    np.testing.assert_allclose(np.diff(rate[quarter + 1 : stops - 2]) / h, -0.5 * BRAKE / J_OUT, rtol=1e-9)
    assert np.abs(rate[stops + 2 :]).max() < 1e-6
    np.testing.assert_allclose(run.row_forces[stops + 2 :, 2], -0.5 * BRAKE, rtol=1e-6)


SOLVERS = {"lemke": Lemke(), "pivoting": BlockPivoting()}
BENT = {"bob": {"position": (0.3, 0.05, -0.2), "velocity": (0.6, 0.0, -1.0)}}


def final(name, z):
    """Where all are after a third of a second in which the rope, the clutch and the brake change their minds."""
    length, torque, inertia, speed, push = z
    params = PARAMS
    for path, value in (
        ("rows.rope.length", length),
        ("rows.brake.torque", torque),
        ("bodies.out.inertia.zz", inertia),
    ):
        params = locate(SYSTEM, path).set(params, value)
    state = state_from_joints(SYSTEM, params, {"in": {"rate": speed}, "rotor": {"rate": 0.2}}, BENT)
    time = jnp.arange(120.0) * params.step
    commands = jnp.stack([push * jnp.cos(25 * time), 0 * time, 0.1 * jnp.sin(9 * time)], axis=-1)
    found = rollout(SYSTEM, params, state, commands, solver=SOLVERS[name], throw=False)
    out = jnp.concatenate([found.position[-1], found.rate[-1], found.r[-1, 0], found.v[-1, 0]])
    return out, (jnp.sign(found.row_forces), jnp.abs(found.row_forces[:, 2]) < torque * (1 - 1e-9))


Z = np.array([LENGTH, BRAKE, J_OUT, 2.0, 0.4])
values = {name: compiled(functools.partial(final, name)) for name in SOLVERS}
slopes = {name: compiled(jax.jacfwd(functools.partial(final, name), has_aux=True)) for name in SOLVERS}


@pytest.fixture(scope="module")
def differences():
    """Central differences of `final`, from which rows change their minds elsewhere."""
    found = []
    _, pattern = values["lemke"](Z)
    for direction in np.eye(len(Z)):
        d = 1e-6 * Z * direction
        (ahead, x_ahead), (back, x_back) = values["lemke"](Z + d), values["lemke"](Z - d)
        for a, b, c in zip(x_ahead, x_back, pattern, strict=True):
            assert np.all(a == b), "degenerate draw: a row changes within the differences"
            assert np.all(a == c)
        found.append((ahead - back) / (2e-6 * (Z @ direction)))
    return np.stack(found, axis=-1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOLVERS)
def test_derivatives_are_those_of_differences(name, differences):
    found, pattern = jax.tree.map(np.asarray, slopes[name](Z))
    scale = np.abs(differences).max(axis=0) + 1e-9
    np.testing.assert_allclose(found / scale, differences / scale, rtol=0, atol=1e-6)
    rope, clutch, _ = np.moveaxis(np.abs(pattern[0]), -1, 0) > 0
    assert all(0 < np.mean(x) < 1 for x in (rope, clutch, pattern[1])), "every row is met on both sides"


@pytest.mark.slow
def test_reverse_mode_agrees_with_forward_mode():
    weights = np.random.default_rng(0).normal(size=values["lemke"](Z)[0].shape)
    gradient = compiled(jax.grad(lambda z: final("lemke", z)[0] @ weights))(Z)
    forward = weights @ np.asarray(slopes["lemke"](Z)[0])
    np.testing.assert_allclose(gradient, forward, rtol=1e-9, atol=1e-9 * np.abs(forward).max())


@pytest.mark.slow
def test_every_solver_gives_the_same_step_and_inverse_dynamics_none():
    @compiled
    def run(state):
        prepared = prepare(SYSTEM, PARAMS)

        def body(now, k):
            command = jnp.array([0.4, 0.0, 0.2]) * jnp.where(k % 40 < 20, 1.0, -1.0)
            found = [step(SYSTEM, prepared, now, command, solver=solver) for solver in SOLVERS.values()]
            v = [jnp.concatenate([s.v, s.w], axis=-1) for s, _ in found]
            missing = inverse_dynamics(SYSTEM, prepared, now, v[0], command)
            return found[0][0], (*v, missing, [info.result for _, info in found])

        return jax.lax.scan(body, half_kick_back(SYSTEM, prepared, state, jnp.zeros(3)), jnp.arange(200))[1]

    v, again, missing, results = run(place(SYSTEM, PARAMS, {"rotor": {"rate": 1.0}}, BENT))
    for result in results:
        assert np.all(result == STEP_RESULTS.successful)
    np.testing.assert_allclose(again, v, rtol=0, atol=1e-9 * np.abs(v).max())
    assert np.abs(missing).max() < 1e-8


SCENE = """
spookax: 1
step: 0.005
bodies:
  a: {mass: 1.0, inertia: [0.01, 0.01, 0.01]}
  b: {mass: 1.0, inertia: [0.01, 0.01, 0.01], initial: {position: [0, 0, -0.3]}}
rows:
  tether: {type: test.rope, bodies: [a, b], length: 0.35}
"""


def test_a_scene_names_rows_of_registered_classes(tmp_path):
    sx.register_row("test.rope", Rope)
    (tmp_path / "scene.yaml").write_text(SCENE)
    system, params, _ = sx.load(tmp_path / "scene.yaml")
    assert system.bounded == (Rope("tether", ("a", "b")),)
    assert locate(system, "rows.tether.length").get(params) == 0.35
    scene = sx.read_scene(tmp_path / "scene.yaml")
    from spookax.scene import numeric_paths

    assert numeric_paths(scene)["rows.tether.length"] == 0.35


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("length: 0.35", "length: 0.2", r"starts at -0\.1"),
        ("length: 0.35", "longth: 0.2", r"no such number.*length"),
        ("length: 0.35", "length: long", "is not a number"),
        ("[a, b]", "[a, c]", "no such body"),
        ("test.rope", "nobody's rope", "no class of this name is registered"),
    ],
)
def test_wrong_rows_are_refused(tmp_path, old, new, message):
    sx.register_row("test.rope", Rope)
    (tmp_path / "scene.yaml").write_text(SCENE.replace(old, new))
    with pytest.raises(SceneError, match=f"(?s)scene.yaml.*{message}"):
        sx.load(tmp_path / "scene.yaml")


def test_a_name_is_registered_once():
    sx.register_row("test.rope", Rope)
    with pytest.raises(ValueError, match=r"test\.rope.*Rope"):
        sx.register_row("test.rope", Clutch)
