"""Rows with bounds whose level follows other impulses: a rope on a bollard, a brake band, a bearing of one's own."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine.mechanisms import DOWN, compiled, mechanism, place, simulate
from engine.test_bounded_rows import SOLVERS

import spookax as sx
from spookax._results import STEP_RESULTS
from spookax.constraints import AbstractBounded, AbstractHolonomic, AbstractUnilateral, prepare
from spookax.scene import Scene, SceneError
from spookax.stepping import half_kick_back, inverse_dynamics, rollout, state_from_joints, step
from spookax.system import BoxKind, build, locate

G = 9.81
MU, ANGLE, HEAVY, LIGHT, LENGTH = 0.3, np.pi, 2.0, 0.5, 2.05
RADIUS, J_DRUM, WEIGHT, SPIN = 0.02, 0.05, 1.5, 4.0
BEARING, LEVER = 0.03, 0.2


@dataclasses.dataclass(frozen=True)
class Rope(AbstractUnilateral):
    """A rope that hangs from a bollard at the height 0 on both sides."""

    name: str
    bodies: tuple[str, ...] = ("heavy", "light")
    num_rows: int = 1

    def defaults(self):
        return {"length": LENGTH}

    def gap(self, poses, values):
        return (values["length"] + poses[0].point(jnp.zeros(3))[2] + poses[1].point(jnp.zeros(3))[2])[None]


@dataclasses.dataclass(frozen=True)
class Bollard(AbstractBounded):
    """What the tensions of both sides differ by: in sliding they are as e to the friction times the angle."""

    name: str
    bodies: tuple[str, ...] = ("heavy", "light")
    num_rows: int = 1
    follows: tuple[str, ...] = ("rows.rope",)

    def defaults(self):
        return {"friction": MU, "angle": ANGLE}

    def speed(self, poses, velocities, values):
        return (velocities[0][2] - velocities[1][2])[None]

    def limits(self, values):
        return -jnp.ones(1), jnp.ones(1)

    def factors(self, values):
        return jnp.tanh(values["friction"] * values["angle"] / 2)[None, None]


@dataclasses.dataclass(frozen=True)
class Stay(AbstractHolonomic):
    """Holds a body at the height -1."""

    name: str
    bodies: tuple[str, ...] = ("weight",)
    num_rows: int = 1

    def gap(self, poses, values):
        return (poses[0].point(jnp.zeros(3))[2] + 1.0)[None]


@dataclasses.dataclass(frozen=True)
class Friction(AbstractBounded):
    """Dry friction about an axis in proportion to a force."""

    name: str
    bodies: tuple[str, ...]
    follows: tuple[str, ...]
    about: int = 5  # of the six velocities
    num_rows: int = 1

    def defaults(self):
        return {"radius": RADIUS}

    def speed(self, poses, velocities, values):
        return velocities[0][self.about][None]

    def limits(self, values):
        return -jnp.ones(1), jnp.ones(1)

    def factors(self, values):
        return values["radius"][None, None]


def slide(body, x, **more):
    return {"type": "prismatic", "child": body, "at": (x, 0, -1), "axis": (0, 0, 1), **more}


def scene(**parts):
    bodies = {name: {"mass": m, "inertia": (0.01,) * 3} for name, m in (("heavy", HEAVY), ("light", LIGHT))}
    arm = {"mass": 1.0, "com": (0, 0, -LEVER), "inertia": (0.01,) * 3}
    pin = {"type": "hinge", "axis": (0, 1, 0)}
    return {
        "bodies": bodies
        | {"weight": {"mass": WEIGHT, "inertia": (0.01,) * 3}, "drum": {"mass": 1.0, "inertia": (J_DRUM,) * 3}}
        | {"arm": arm, "twin": arm},
        "joints": {
            "heavy": slide("heavy", 0.1),
            "light": slide("light", -0.1),
            "weight": slide("weight", 1.0),
            "drum": {"type": "hinge", "child": "drum", "at": (2, 0, 0), "axis": (0, 0, 1)},
            "pin": {**pin, "child": "arm", "at": (3, 0, 0), "friction": {"bearing": BEARING}},
            "own": {**pin, "child": "twin", "at": (4, 0, 0)},
        },
        "motors": {"lift": {"type": "torque", "joint": "heavy"}},
        **parts,
    }


ROWS = (
    Rope("rope"),
    Bollard("bollard"),
    Stay("stay"),
    Friction("band", ("drum",), ("rows.stay",)),
    Friction("journal", ("twin",), ("joints.own",), 4),
)
SYSTEM, PARAMS = build(Scene(spookax=1, step=0.0025, gravity=DOWN, **scene()), ROWS)
SWINGING = {"pin": {"position": 1.0, "rate": -2.0}, "own": {"position": 1.0, "rate": -2.0}, "drum": {"rate": SPIN}}
AT_REST = {name: dict.fromkeys(motion, 0.0) for name, motion in SWINGING.items()}  # by the same program


def changed(params, **numbers):
    for path, value in numbers.items():
        params = locate(SYSTEM, path.replace("__", ".")).set(params, value)
    return params


@pytest.fixture(scope="module")
def run():
    """Taut from the start: the heavy side goes down."""
    params = changed(PARAMS, rows__rope__length=2.0, rows__journal__radius=BEARING)
    return simulate(SYSTEM, params, place(SYSTEM, params, SWINGING))


def test_what_is_followed(run):
    """The friction of the bearing, its twin, the rope and the stay; edges that carry no Jacobian come last."""
    boxes = {SYSTEM.boxes[f.box].kind for f in SYSTEM.following}
    assert boxes == {BoxKind.friction, BoxKind.own}
    assert len(SYSTEM.following) == 4
    extra = SYSTEM.edges[-SYSTEM.num_followed_edges :]  # the others are followed by rows that act on the same bodies
    assert [body for _, body in extra] == [SYSTEM.bodies.index("drum")]


def test_a_rope_slides_around_a_bollard_as_euler_says(run):
    """Tensions as e^(mu phi): a = g (m1 - m2 e^(mu phi)) / (m1 + m2 e^(mu phi)); the rope has a compliance of 1e-6."""
    e = np.exp(MU * ANGLE)
    a = G * (HEAVY - LIGHT * e) / (HEAVY + LIGHT * e)
    till = 200  # 0.27 m
    _, down = run.joint("heavy")
    _, up = run.joint("light")
    np.testing.assert_allclose(down[1:till], -a * run.time[1:till], rtol=1e-5)
    np.testing.assert_allclose(up[1:till], a * run.time[1:till], rtol=1e-5)
    tension, difference = run.row_forces[1:till, 0], run.row_forces[1:till, 1]
    np.testing.assert_allclose(tension + difference, HEAVY * (G - a), rtol=1e-5)
    np.testing.assert_allclose((tension + difference) / (tension - difference), e, rtol=1e-9)


def test_a_rope_holds_below_the_ratio():
    """Twice the weight is less than e^(mu phi) = 2.57 times: the rope creeps no faster than friction does."""
    params = changed(PARAMS, rows__rope__length=2.0, bodies__heavy__mass=2 * LIGHT)
    run = simulate(SYSTEM, params, place(SYSTEM, params, AT_REST))
    assert np.abs(run.joint("heavy")[1]).max() < float(PARAMS.v_creep)
    np.testing.assert_allclose(run.row_forces[2:, 1], LIGHT * G / 2, rtol=1e-6)
    np.testing.assert_allclose(run.row_forces[2:, 0], 1.5 * LIGHT * G, rtol=1e-6)


def test_a_band_brakes_by_the_weight_that_hangs_on_it(run):
    """A row without bounds is followed: the drum loses r m g / J a second, and stands still after that."""
    _, rate = run.joint("drum")
    slowing = RADIUS * WEIGHT * G / J_DRUM
    stops = int(SPIN / slowing / float(PARAMS.step))
    np.testing.assert_allclose(rate[1 : stops - 1], SPIN - slowing * run.time[1 : stops - 1], rtol=1e-6)
    assert np.abs(rate[stops + 2 :]).max() < float(PARAMS.v_creep)


def test_a_bearing_of_ones_own_is_that_of_the_scene(run):
    """`friction.bearing`, and a row that follows the joint's force: one motion."""
    assert np.ptp(run.joint("pin")[0]) > 0.3
    np.testing.assert_allclose(run.joint("own")[0], run.joint("pin")[0], rtol=0, atol=1e-10)


def final(name, z):
    """Where all are after 0.3 s in which the rope is slack, taut, slides and holds."""
    mu, length, light, radius, push = z
    params = changed(
        PARAMS,
        rows__bollard__friction=mu,
        rows__rope__length=length,
        bodies__light__mass=light,
        rows__journal__radius=radius,
        rows__band__radius=radius,
    )
    state = state_from_joints(SYSTEM, params, SWINGING)
    commands = push * jnp.cos(25 * jnp.arange(120.0) * params.step)[:, None]
    found = rollout(SYSTEM, params, state, commands, solver=SOLVERS[name], throw=False)
    tension, difference = found.row_forces[:, 0], found.row_forces[:, 1]
    slides = jnp.abs(difference) > tension * jnp.tanh(mu * ANGLE / 2) * (1 - 1e-9)
    out = jnp.concatenate([found.position[-1], found.rate[-1]])
    return out, (tension > 0, slides, jnp.sign(difference), jnp.sign(found.rate[:, 3:]))


Z = np.array([0.5, LENGTH - 0.03, 0.6, BEARING, 25.0])
values = {name: compiled(functools.partial(final, name)) for name in SOLVERS}
slopes = {name: compiled(jax.jacfwd(functools.partial(final, name), has_aux=True)) for name in SOLVERS}


@pytest.fixture(scope="module")
def differences():
    """Central differences of `final`, from which rows change their minds elsewhere: over the largest part of a number
    that changes no row's, since rounding of a stiff rope's tension is divided by it."""
    _, pattern = values["lemke"](Z)

    def slope(i, part):
        d = part * Z * np.eye(len(Z))[i]
        (ahead, x_ahead), (back, x_back) = values["lemke"](Z + d), values["lemke"](Z - d)
        same = all(np.all(a == c) and np.all(b == c) for a, b, c in zip(x_ahead, x_back, pattern, strict=True))
        return (ahead - back) / (2 * part * Z[i]) if same else None

    found = [next(x for part in (1e-5, 3e-6, 1e-6) if (x := slope(i, part)) is not None) for i in range(len(Z))]
    return np.stack(found, axis=-1)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SOLVERS)
def test_derivatives_are_those_of_differences(name, differences):
    """Through what follows a row with bounds that is free, and through one that is slack."""
    found, _ = jax.tree.map(np.asarray, slopes[name](Z))
    scale = np.abs(differences).max(axis=0) + 1e-9
    np.testing.assert_allclose(found / scale, differences / scale, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_draw_is_not_degenerate():
    _, (taut, slides, side, _) = values["lemke"](Z)
    assert 0 < np.mean(taut) < 1
    assert 0 < np.mean(slides[taut]) < 1
    assert {-1.0, 1.0} <= set(np.unique(side[taut]))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_reverse_mode_agrees_with_forward_mode():
    weights = np.random.default_rng(0).normal(size=values["lemke"](Z)[0].shape)
    gradient = compiled(jax.grad(lambda z: final("pivoting", z)[0] @ weights))(Z)
    forward = weights @ np.asarray(slopes["pivoting"](Z)[0])
    np.testing.assert_allclose(gradient, forward, rtol=1e-9, atol=1e-9 * np.abs(forward).max())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_solver_gives_the_same_step_and_inverse_dynamics_none():
    @compiled
    def run(state):
        prepared = prepare(SYSTEM, PARAMS)

        def body(now, k):
            command = jnp.array([25.0]) * jnp.where(k % 40 < 20, 1.0, -1.0)
            found = [step(SYSTEM, prepared, now, command, solver=solver) for solver in SOLVERS.values()]
            v = [jnp.concatenate([s.v, s.w], axis=-1) for s, _ in found]
            missing = [inverse_dynamics(SYSTEM, prepared, now, each, command) for each in v]
            return found[0][0], (*v, missing, [info.result for _, info in found])

        return jax.lax.scan(body, half_kick_back(SYSTEM, prepared, state, jnp.zeros(1)), jnp.arange(200))[1]

    v, again, missing, results = run(place(SYSTEM, PARAMS, SWINGING))
    for result in results:
        assert np.all(result == STEP_RESULTS.successful)
    np.testing.assert_allclose(again, v, rtol=0, atol=1e-9 * np.abs(v).max())
    # the condensed problem leaves more rounding in velocities, which counts over the slack of the taut rope, 1e-6
    rounding = {"lemke": 1e-12 * np.abs(v).max() / 1e-6, "pivoting": 1e-8}
    for name, each in zip(SOLVERS, missing, strict=True):
        assert np.abs(each).max() < rounding[name], name


def test_contacts_leave_the_friction_of_a_bearing_as_it_is():
    """A ball that lies on a floor beside a pendulum: the step is another solver's, the pendulum swings as it did."""
    arm = {"mass": 1.0, "com": (0, 0, -LEVER), "inertia": (0.01,) * 3}
    pin = {"type": "hinge", "axis": (0, 1, 0), "child": "arm", "at": (0, 0, 2), "friction": {"bearing": BEARING}}
    alone = {"bodies": {"arm": arm}, "joints": {"pin": pin}}
    with_ball = {
        "bodies": {"arm": arm, "ball": {"mass": 1.0, "inertia": (0.004,) * 3}},
        "joints": {"pin": pin},
        "contacts": {
            "surfaces": {"floor": {"type": "plane"}, "ball": {"type": "sphere", "body": "ball", "radius": 0.1}}
        },
    }
    angles = []
    for parts in (alone, with_ball):
        system, params = mechanism(0.005, DOWN, **parts)
        bodies = {"ball": {"position": (1.0, 0.0, 0.1)}} if "ball" in system.bodies else {}
        found = compiled(functools.partial(rollout, system, throw=False))(
            params, state_from_joints(system, params, {"pin": {"position": 1.0}}, bodies), jnp.zeros((200, 0))
        )
        assert found.result == STEP_RESULTS.successful
        angles.append(found.position[:, 0])
    np.testing.assert_allclose(angles[1], angles[0], rtol=0, atol=1e-8)


@dataclasses.dataclass(frozen=True)
class Plain(AbstractBounded):
    """A brake that follows nothing, and has no field for it."""

    name: str
    bodies: tuple[str, ...]
    num_rows: int = 1

    def speed(self, poses, velocities, values):
        return velocities[0][5][None]

    def limits(self, values):
        return -jnp.ones(1), jnp.ones(1)


FILE = """
spookax: 1
bodies:
  a: {mass: 1.0, inertia: [0.01, 0.01, 0.01]}
  b: {mass: 1.0, inertia: [0.01, 0.01, 0.01]}
joints:
  hub: {type: hinge, child: a, axis: [0, 0, 1]}
  loose: {type: generic, child: b, locked: [rx]}
rows:
  band: {type: test.friction, bodies: [a], follows: [joints.hub], radius: 0.1}
  other: {type: test.friction, bodies: [b], follows: [rows.stay]}
  stay: {type: test.stay, bodies: [b]}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("joints.hub]", "joints.hob]", r"rows\.band\.follows.*there is no such row or joint.*joints\.hub"),
        ("rows.stay]", "rows.band]", r"rows\.other\.follows.*follows others itself"),
        ("rows.stay]", "rows.other]", r"rows\.other\.follows.*follows others itself"),
        ("rows.stay]", "joints.loose.axes.y]", r"rows\.other\.follows.*nothing presses across"),
        ("test.friction, bodies: [a]", "test.plain, bodies: [a]", r"rows\.band\.follows.*cannot follow.*field"),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path, old, new, message):
    for name, row in (("test.friction", Friction), ("test.stay", Stay), ("test.plain", Plain)):
        sx.register_row(name, row)
    (tmp_path / "scene.yaml").write_text(FILE.replace(old, new))
    with pytest.raises(SceneError, match=f"(?s)scene.yaml.*{message}"):
        sx.load(tmp_path / "scene.yaml")


def test_a_scene_says_what_its_rows_follow(tmp_path):
    for name, row in (("test.friction", Friction), ("test.stay", Stay)):
        sx.register_row(name, row)
    (tmp_path / "scene.yaml").write_text(FILE)
    scene = sx.read_scene(tmp_path / "scene.yaml")
    system, params = build(scene)
    assert [row.follows for row in system.bounded] == [("joints.hub",), ("rows.stay",)]
    assert [f.rows for f in system.following] == [(0, 1), (0,)]
    assert locate(system, "rows.band.radius").get(params) == 0.1
