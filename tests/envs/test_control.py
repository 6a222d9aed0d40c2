"""Linear models in joint coordinates, and the regulator of an equilibrium."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from envs.rigs import STEP, scene

import spookax as sx
from spookax import control
from spookax.control.lqr import local

ROOT = Path(__file__).parents[2]
STEPS = 2
INERTIA, WEIGHT, VISCOUS = 0.1 + 1.0 * 0.5**2, 9.81 * 0.5, 0.05  # of the rod about its hinge


@pytest.fixture(scope="module")
def rig():
    system, params = sx.build(scene())
    return system, params


@pytest.fixture(scope="module")
def upright(rig):
    return control.lqr(*rig, {"pivot": np.pi}, weight={"pivot": 10.0}, input_weight=0.5, steps=STEPS)


def _one(plant, point):
    return [np.asarray(a) for a in local(plant, point[None, :2], point[None, 2:])]


def test_the_linear_model_is_the_central_difference_of_the_plant(rig):
    plant = control.Plant(*rig, steps=STEPS)
    point, d = np.array([0.7, -1.2, 0.4]), 1e-5
    A, B, _ = (a[0] for a in _one(plant, point))
    after = np.concatenate([_one(plant, point + move)[2] for move in (*(np.eye(3) * d), *(np.eye(3) * -d))])
    found = (after[:3] - after[3:]).T / (2 * d)
    np.testing.assert_allclose(np.concatenate([A, B], axis=1), found, rtol=0, atol=1e-8)


def test_the_linear_model_tends_to_that_of_the_textbook(upright):
    """I q'' = m g l (q - pi) - c q' + u upright; exact over a control period up to the order of the step."""
    linear = upright.linear
    continuous = np.array([[0, 1], [WEIGHT / INERTIA, -VISCOUS / INERTIA]])
    both = np.zeros((3, 3))
    both[:2] = np.column_stack([continuous, [0, 1 / INERTIA]])
    exact = scipy.linalg.expm(both * STEPS * STEP)[:2]
    # the rates are half a step earlier, and the input acts on them first: an error of h/2 in the state
    found = np.column_stack([linear.A, linear.B])
    allowed = 2 * STEP * np.linalg.norm(continuous) * np.linalg.norm(exact - np.eye(2, 3))
    np.testing.assert_allclose(found, exact, rtol=0, atol=allowed)
    np.testing.assert_allclose(np.linalg.det(linear.A), np.exp(-VISCOUS / INERTIA * STEPS * STEP), rtol=1e-5)
    assert (linear.coordinates, linear.motors, linear.period) == (("pivot",), ("drive",), STEPS * STEP)


def test_the_regulator_costs_least_and_holds_the_mechanism(rig, upright):
    linear, h = upright.linear, STEPS * STEP
    closed = linear.A - linear.B @ upright.K
    assert np.abs(upright.poles).max() < 1
    # what it costs from here on is the weights of now and the cost from the next period on
    now = h * np.diag([10.0, 0.0]) + upright.K.T * h * 0.5 @ upright.K
    np.testing.assert_allclose(upright.cost, now + closed.T @ upright.cost @ closed, rtol=1e-8)
    for change in (np.array([[0.05, 0.0]]), np.array([[0.0, -0.05]])):  # any other costs more
        K = upright.K + change
        other = linear.A - linear.B @ K
        dearer = scipy.linalg.solve_discrete_lyapunov(other.T, h * (np.diag([10.0, 0.0]) + K.T * 0.5 @ K))
        assert np.linalg.eigvalsh(dearer - upright.cost).min() > -1e-12
        assert np.trace(dearer) > np.trace(upright.cost)
    plant = control.Plant(*rig, steps=STEPS)
    x = np.array([np.pi + 0.3, 0.0])
    for _ in range(150):
        *_, after = _one(plant, np.concatenate([x, upright(x)]))
        x = after[0]
    np.testing.assert_allclose(x, [np.pi, 0.0], rtol=0, atol=1e-4)


def test_a_motor_holds_weight_at_any_angle_and_bad_input_is_said(rig):
    held = control.lqr(*rig, {"pivot": 0.5}, steps=STEPS)
    np.testing.assert_allclose(held.linear.u, [WEIGHT * np.sin(0.5)], rtol=1e-6)
    np.testing.assert_array_equal(held.linear.x, [0.5, 0.0])
    with pytest.raises(ValueError, match="no joint coordinate 'elbow'"):
        control.lqr(*rig, {"elbow": 0.0})
    with pytest.raises(ValueError, match=r"`weight` names 'pivto', which is not there. Did you mean `pivot`"):
        control.lqr(*rig, {"pivot": np.pi}, weight={"pivto": 1.0}, steps=STEPS)
    with pytest.raises(ValueError, match="no motor 'other'"):
        control.Plant(*rig, motors=("other",))
    with pytest.raises(ValueError, match=r"need the shapes \(..., 2\) and \(..., 1\), got \(3,\) and \(1,\)"):
        control.linearise(*rig, np.zeros(3), np.zeros(1), steps=STEPS)
    free = {"bodies": {"ball": {"mass": 1.0, "inertia": (1, 1, 1)}}, "joints": {}, "motors": {}, "sensors": {}}
    with pytest.raises(ValueError, match="this scene has bodies that no joint holds"):
        control.Plant(*sx.build(scene(**free, initial={})))


@pytest.mark.slow
def test_a_cart_balances_its_pole_upright_alone_and_derivatives_of_what_sticks_creep():
    cart = sx.read_scene(ROOT / "scenes/cart_pole.yaml")
    system, params, _ = sx.load(cart)
    with pytest.raises(ValueError, match="no input of belt holds the mechanism"):
        control.lqr(system, params, {"pivot": 1.0})
    pole = cart.bodies["pole"].model_copy(update={"com": (0.03, 0.0, -0.3)})  # beside its line
    crooked, theirs = sx.build(cart.model_copy(update={"bodies": cart.bodies | {"pole": pole}}))
    found = control.lqr(crooked, theirs, {"pivot": np.pi}, input_weight=0.01)
    # a turn by q about y puts the centre of mass at x = 0.03 cos q - 0.3 sin q, which is above the hinge in balance
    np.testing.assert_allclose(found.linear.x[1] - np.pi, np.arctan2(0.03, 0.3), rtol=1e-4)
    still, push = np.array([0.0, np.pi, 0.0, 0.0]), np.zeros(1)
    stuck = control.linearise(system, params, still, push)
    # dry friction of the rail holds the cart: it creeps by `v_creep` at the largest force that holds, linearly
    creep = 1e-6 / (0.2 + 0.1) * 1.7  # m/s per volt
    np.testing.assert_allclose(stuck.B[2, 0], creep, rtol=1e-3)
    moves = control.linearise(system, params, np.stack([still, still]), np.zeros((2, 1)), dry_friction=False)
    assert moves.A.shape == (2, 4, 4)
    assert float(moves.B[1, 2, 0]) > 1e-3
    assert isinstance(found(jnp.asarray(still)), jax.Array)


LIMIT = 3.0  # N m, less than the rod's weight asks for beside the hinge


@pytest.fixture(scope="module")
def swing(rig):
    """From hanging to upright in 3 s, by a motor that cannot lift it at once; and the costs that were told."""
    told: list[tuple[int, float, float]] = []
    found = control.ilqr(
        *rig,
        {},
        {"pivot": np.pi},
        periods=150,
        limits={"drive": LIMIT},
        input_weight=0.02,
        steps=STEPS,
        report=lambda *line: told.append(line),
    )
    return found, told


def test_a_pendulum_swings_up_within_the_limits_of_its_motor(rig, swing):
    found, told = swing
    assert found.status == "converged"
    np.testing.assert_allclose(found.x[-1], [np.pi, 0.0], rtol=0, atol=0.02)
    assert np.abs(found.u).max() == LIMIT
    assert found.x[:, 0].min() < -0.1  # it had to swing back first
    assert (np.diff(found.costs) <= 0).all()
    assert [line[:2] for line in told] == list(enumerate(found.costs[1:], 1))
    plant = control.Plant(*rig, steps=STEPS)
    x = found.x[0] + np.array([0.02, 0.0])  # the feedback leads another start to the same end
    for k in range(150):
        *_, after = _one(plant, np.concatenate([x, np.asarray(found(k, x))]))
        x = after[0]
    np.testing.assert_allclose(x, [np.pi, 0.0], rtol=0, atol=0.05)


def test_no_change_of_its_inputs_makes_a_swing_cheaper(rig, swing, rng):
    """To first order: the slope of the cost, by differences, is zero but where a limit keeps it."""
    found, _ = swing
    plant, h, d = control.Plant(*rig, steps=STEPS), STEPS * STEP, 1e-4
    state = np.array([1.0, 0.1])

    def cost(u: np.ndarray) -> float:
        x = found.x[0]
        total = 0.0
        for k in range(len(u)):
            total += h * (state @ (x - [np.pi, 0.0]) ** 2 + 0.02 * u[k, 0] ** 2)
            x = np.asarray(_one(plant, np.concatenate([x, u[k]]))[2][0])
        return float(total + 100 * state @ (x - [np.pi, 0.0]) ** 2) / 2

    assert cost(found.u) == pytest.approx(found.cost, rel=1e-9)
    inside = np.abs(found.u) < LIMIT - 1e-3
    for _ in range(2):
        move = np.where(inside, rng.standard_normal(found.u.shape), 0.0)
        slope = (cost(found.u + d * move) - cost(found.u - d * move)) / (2 * d)
        curvature = (cost(found.u + d * move) + cost(found.u - d * move) - 2 * found.cost) / d**2
        assert abs(slope) < 0.05 * abs(curvature)  # the cost would gain less than a thousandth of its curvature


def test_near_an_equilibrium_a_long_plan_costs_what_the_regulator_says(rig, upright):
    start = np.pi + 0.01
    found = control.ilqr(
        *rig,
        {"pivot": start},
        {"pivot": np.pi},
        periods=150,
        limits={"drive": 50.0},
        weight={"pivot": 10.0},
        rate_weight={},
        input_weight=0.5,
        steps=STEPS,
        guess=np.zeros((150, 1)),
    )
    off = np.array([0.01, 0.0])
    assert found.cost == pytest.approx(off @ upright.cost @ off / 2, rel=2e-3)  # a pendulum is not linear: 0.01^2
    np.testing.assert_allclose(found.K[0], -upright.K, rtol=2e-3)


@pytest.mark.slow
def test_the_direct_method_finds_the_plan_of_iterative_lqr(rig):
    """Where there is one minimum: a lift from where the motor can just hold, which its limit slows down."""
    limit, problem = 3.0, {"periods": 60, "input_weight": 0.02, "steps": STEPS}
    start, goal = {"pivot": np.pi - 0.6}, {"pivot": np.pi}
    there = control.ilqr(*rig, start, goal, limits={"drive": limit}, **problem)
    told: list[tuple[int, float, float]] = []
    options = {"limits": {"drive": limit}, "report": lambda *line: told.append(line)}
    found = control.direct(*rig, start, goal, **options, **problem)
    assert (there.status, found.status) == ("converged", "converged")
    assert found.cost == pytest.approx(there.cost, rel=1e-3)
    np.testing.assert_allclose(found.x, there.x, rtol=0, atol=0.02)
    assert np.abs(found.u).max() <= limit
    assert np.abs(found.u).max() > 0.98 * limit  # it binds
    plant = control.Plant(*rig, steps=STEPS)  # the states are those of the mechanism under these inputs
    *_, ahead = (np.asarray(a) for a in local(plant, found.x[:-1], found.u))
    np.testing.assert_allclose(ahead, found.x[1:], rtol=0, atol=1e-10)
    assert [line[0] for line in told] == list(range(1, len(found.costs) - 1))
    assert told[-1][2] <= 1e-6
    with pytest.raises(ValueError, match="`limits` are for the motors drive, got none"):
        control.direct(*rig, start, goal, limits={}, **problem)


def test_a_mechanism_that_is_there_stays_there(rig):
    found = control.ilqr(*rig, {}, {}, periods=150, limits={"drive": LIMIT}, steps=STEPS, guess=np.zeros((150, 1)))
    assert found.status == "converged"
    np.testing.assert_allclose(found.u, 0.0, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"limits": {}}, "`limits` are for the motors drive, got none"),
        ({"limits": {"drive": (1.0, -1.0)}}, "the least below the largest"),
        ({"weight": {"pivto": 1.0}}, "`weight` names 'pivto'"),
        ({"input_weight": 0.0}, "`input_weight` must be positive"),
        ({"guess": np.zeros((3, 1))}, r"of the shape \(150, 1\), got \(3, 1\)"),
        ({"periods": 0}, "`periods` must be 1 at least"),
    ],
)
def test_bad_input_of_a_plan_is_said(rig, changes, words):
    with pytest.raises(ValueError, match=words):
        control.ilqr(*rig, {}, {"pivot": np.pi}, **({"periods": 150, "limits": {"drive": LIMIT}} | changes))
