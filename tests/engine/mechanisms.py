"""Mechanisms that the law tests share, and the compiled functions that run them.

Compiling is what these tests cost: a mechanism (its topology) is compiled once for `simulate` and run with many
numbers, always for the same number of steps. What a test needs beyond `STEPS` it says itself.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from spookax._compiled import SLOW, known_options
from spookax._results import STEP_RESULTS
from spookax._typing import Array
from spookax.constraints import Prepared, prepare
from spookax.scene import Scene
from spookax.scene.joint_types import KINDS, free_axes, kind_of
from spookax.scene.model import Regularisation
from spookax.stepping import Trajectory, inverse_dynamics, rollout, state_from_joints, step
from spookax.stepping.march import march
from spookax.system import Params, State, System, build

STEPS = 2400
NEEDED = {  # keys that a type cannot do without
    "distance": {"length": 0.4},
    "screw": {"pitch": 0.3},
    "rolling_sphere": {"radius": 0.2},
    "rolling_disc": {"radius": 0.2},  # small enough that the one of `pairs` does not lie down
}
LOCKED = {  # generic joints: one of every number of turns, about other columns than those of the joints with a name
    "generic_x_ry": ["y", "z", "rx", "rz"],
    "generic_z_rx_rz": ["x", "y", "ry"],
    "generic_ry_rz": ["x", "y", "z", "rx"],
}
JOINTS = {kind: {"type": kind} | NEEDED.get(kind, {}) for kind in KINDS}  # a new one is tested by being there
JOINTS |= {name: {"type": "generic", "locked": locked} for name, locked in LOCKED.items()}
JOINT_TYPES = tuple(JOINTS)
JOINT_KINDS = {name: kind for name, keys in JOINTS.items() if (kind := kind_of(keys))}
AXES = {path: joint for path, joint, _ in free_axes(JOINT_KINDS)}  # axis of `pairs` -> joint
# those of `rack`: their axes have a direction at zero and move one by one; generic ones move as they do (test_generic)
REGULAR = tuple(joint for joint in JOINTS if joint != "line" and not joint.startswith(("generic", "rolling")))
NAMES = tuple(name for name, joint in AXES.items() if joint in REGULAR)  # axes of `rack`
PULLS = {  # of types without rows: what they do in `pairs`
    "line": {"spring": {"stiffness": 20.0, "rest": 0.5}},
    "generic": {"axes": {axis.name: {"spring": {"stiffness": 2.0, "rest": 0.2}} for axis in KINDS["generic"].axes}},
}

# XLA without its slow passes: a third of the time to compile, twice that to run, the same numbers to rounding.
OPTIONS = known_options(SLOW | {"xla_cpu_parallel_codegen_split_count": 1})
compiled = functools.partial(jax.jit, compiler_options=OPTIONS)
place = state_from_joints
_rollout = compiled(functools.partial(rollout, throw=False), static_argnums=0, static_argnames="half_kick")


def pushed(system: System, prepared: Prepared, state: State, count: int) -> State:
    """State after some steps without commands. The step is traced and compiled once, however many they are."""
    command = jnp.zeros(len(system.motors))
    return jax.lax.fori_loop(0, count, lambda _, now: step(system, prepared, now, command)[0], state)


@functools.partial(compiled, static_argnums=0)
def missing(system: System, params: Params, state: State) -> Array:
    """Impulses that inverse dynamics finds for what a step without commands has done: zero."""
    prepared, command = prepare(system, params), jnp.zeros(len(system.motors))
    after, _ = step(system, prepared, state, command)
    return inverse_dynamics(system, prepared, state, jnp.concatenate([after.v, after.w], axis=-1), command)


def simulate(system: System, params: Params, state: State, command=0.0, *, half_kick: bool = True) -> Trajectory:
    """`STEPS` steps under constant motor commands, or commands of shape (`STEPS`, motors); every step succeeds."""
    controls = np.broadcast_to(np.asarray(command, dtype=float), (STEPS, len(system.motors)))
    trajectory = _rollout(system, params, state, controls, half_kick=half_kick)
    assert trajectory.result == STEP_RESULTS.successful, f"failed at step {int(trajectory.failed_step)}"
    return jax.tree.map(np.asarray, trajectory)


@functools.partial(compiled, static_argnums=0)
def _engine_states(system: System, params: Params, state: State) -> State:
    prepared, command = prepare(system, params), jnp.zeros(len(system.motors))

    found = march(system, prepared, state, jnp.broadcast_to(command, (STEPS, *command.shape)))
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b[:-1]]), found.start, found.states)


def engine_states(system: System, params: Params, state: State) -> State:
    """`STEPS` leap-frog states (velocities half a step before the poses), stacked, without commands."""
    return jax.tree.map(np.asarray, _engine_states(system, params, state))


def mechanism(step: float, gravity, **parts) -> tuple[System, Params]:
    """A mechanism from the parts of a scene, regularisation among them."""
    regularisation = {k: parts.pop(k) for k in list(parts) if k in Regularisation.model_fields}
    return build(Scene(spookax=1, step=step, gravity=gravity, regularisation=regularisation, **parts))


DOWN = (0.0, 0.0, -9.81)


def pendulum(step: float = 0.005, *, lever=0.5, mass=1.0, inertia=0.1, **options) -> tuple[System, Params]:
    """A free pendulum about y: angle 0 hangs, no friction row, no motor."""
    return mechanism(
        step,
        DOWN,
        bodies={"bob": {"mass": mass, "com": (0, 0, -lever), "inertia": (inertia,) * 3}},
        joints={"pivot": {"type": "hinge", "child": "bob", "axis": (0, 1, 0)}},
        **options,
    )


BENCH = ("hinge", "prismatic")  # the axes of `bench`


def bench(
    step: float = 0.005, *, gravity=(0, 0, 0), hinge=None, prismatic=None, rotor=None, cart=None, motor=None, **options
) -> tuple[System, Params]:
    """An axis that turns and one that slides, each with a motor and dry friction: a rotor about y, a cart along x.

    `hinge`, `prismatic`: keys of the joints, called by their type; `rotor`, `cart`: of the bodies; `motor`: of both
    motors.
    """
    friction = {"coulomb": 1.0}
    return mechanism(
        step,
        gravity,
        bodies={
            "rotor": {"mass": 1.0, "inertia": (0.2, 0.2, 0.2)} | (rotor or {}),
            "cart": {"mass": 2.0, "inertia": (0.1, 0.1, 0.1)} | (cart or {}),
        },
        joints={
            "hinge": {"type": "hinge", "child": "rotor", "axis": (0, 1, 0), "friction": friction} | (hinge or {}),
            "prismatic": {"type": "prismatic", "child": "cart", "axis": (1, 0, 0), "friction": friction}
            | (prismatic or {}),
        },
        motors={
            "spin": {"type": "torque", "joint": "hinge"} | (motor or {}),
            "push": {"type": "torque", "joint": "prismatic"} | (motor or {}),
        },
        **options,
    )


J_RACK, M_RACK, PITCH = 0.2, 2.0, 3.0  # of every body of `rack` [kg m^2, kg]; of its screw [m]


def acted_on(joint: str, along: dict | None) -> dict:
    """Keys that let the same act along all axes of a joint, as far as its type takes it."""
    kind, along = JOINT_KINDS[joint], along or {}
    spring = {"spring": {"stiffness": along["spring"]["stiffness"]}} if "spring" in along else {}
    directed = {key: value for key, value in along.items() if key != "limits"} | spring  # of what has no angle
    if kind.isotropic:
        return directed
    of = {axis.name: directed if axis.kind == "spin" else along for axis in kind.axes}
    named = {name: keys for name, keys in of.items() if name}
    return of.get("", {}) | ({"axes": named} if named else {})


def rack(step: float = 0.005, *, along=None, **options) -> tuple[System, Params]:
    """Every joint of `REGULAR` between the world and a body of its own, without gravity, a motor on every axis.

    `along`: friction, spring and armature of every axis.
    """
    joints = {name: JOINTS[name] | {"child": f"{name}_body"} | acted_on(name, along) for name in REGULAR}
    joints["screw"] |= {"pitch": PITCH}
    return mechanism(
        step,
        (0, 0, 0),
        bodies={f"{kind}_body": {"mass": M_RACK, "inertia": (J_RACK,) * 3} for kind in REGULAR},
        joints=joints,
        motors={
            name.replace(".", "_"): {"type": "torque", "joint": name} for name, kind in AXES.items() if kind in REGULAR
        },
        **options,
    )


FREE = tuple(name for name in NAMES if name != "screw.slide")  # a screw's slide follows its turn
U = 0.4  # N m, N


def inertia(system, name):
    """What a motor on this axis has to move [kg m^2 or kg]."""
    if name == "screw":
        return J_RACK + M_RACK * (PITCH / (2 * np.pi)) ** 2
    return J_RACK if system.axes[system.axis_of(name)].rotational else M_RACK


def turns():
    """Sets of axes, not two of one joint, that hold every axis once."""
    by_joint = {}
    for name in FREE:
        by_joint.setdefault(name.partition(".")[0], []).append(name)
    most = max(map(len, by_joint.values()))
    return [[names[i] for names in by_joint.values() if i < len(names)] for i in range(most)]


def driven(names, u=U):
    return [u if name in names else 0.0 for name in NAMES]


def moved(system, params, names, command=None, start=None):
    """Position and rate over time of some axes, driven or released."""
    joints = dict.fromkeys(names, start) if start is not None else {}
    trajectory = simulate(system, params, place(system, params, joints), driven(names) if command is None else command)
    return {name: trajectory.joint(name) for name in names}, trajectory


ARM = {"J": 1.1e-3 + 0.3 * 0.1**2, "L": 0.2, "m": 0.1, "l": 0.15, "Jx": 8e-4, "Jy": 7e-4, "Jz": 1e-4}


def furuta(step: float = 0.005, *, shoulder=None, elbow=None, **options) -> tuple[System, Params]:
    """A rotary pendulum: arm about z with a motor, pendulum about the arm's x axis; friction as given."""
    return mechanism(
        step,
        options.pop("gravity", DOWN),
        bodies={
            "arm": {"mass": 0.3, "com": (0.1, 0, 0), "inertia": (1e-4, 1.1e-3, 1.1e-3)},
            "pendulum": {
                "mass": ARM["m"],
                "com": (0, 0, -ARM["l"]),
                "inertia": (ARM["Jx"], ARM["Jy"], ARM["Jz"]),
            },
        },
        joints={
            "shoulder": {"type": "hinge", "child": "arm", "axis": (0, 0, 1), "friction": shoulder or {}},
            "elbow": {
                "type": "hinge",
                "parent": "arm",
                "child": "pendulum",
                "at": (ARM["L"], 0, 0),
                "axis": (1, 0, 0),
                "friction": elbow or {},
            },
        },
        motors={"drive": {"type": "torque", "joint": "shoulder"}},
        **options,
    )


def pairs(step: float = 0.005, gravity=(0, 0, 0)) -> tuple[System, Params]:
    """Two free bodies, TYPE_a and TYPE_b, joined by each type of joint, in one system of separate pairs."""
    bodies, joints = {}, {}
    for i, kind in enumerate(JOINT_TYPES):
        bodies[f"{kind}_a"] = {
            "mass": 1.0 + 0.3 * i,
            "com": (0.1, -0.05, 0.02),
            "inertia": {"xx": 0.02, "yy": 0.03, "zz": 0.025, "xy": 0.002, "xz": -0.001, "yz": 0.003},
        }
        bodies[f"{kind}_b"] = {"mass": 0.7, "com": (0, 0, 0.1), "inertia": (0.01, 0.02, 0.015)}
        joints[kind] = JOINTS[kind] | PULLS.get(kind, {})
        joints[kind] |= {
            "parent": f"{kind}_a",
            "child": f"{kind}_b",
            "at": (0.2, 0.1, 0.3),
            "child_at": (-0.1, 0.05, -0.2),
            "rotation": (0.3, -0.4, 0.5),
        }
        joints[kind] |= {"axis": (1, 2, -0.5)} if "axis" in JOINT_KINDS[kind].keys else {}
        joints[kind] |= {"x_axis": (2, -1, 0)} if "x_axis" in JOINT_KINDS[kind].keys else {}
    return mechanism(step, gravity, bodies=bodies, joints=joints)


def placed_pairs(system: System, params: Params, joints: dict, bodies: dict) -> State:
    """`pairs` from positions, or positions and rates, of axes; what is not given is zero. One program for all."""
    given = {}
    for name in ("ball", *(name for name, joint in AXES.items() if joint != "ball")):
        zero = np.zeros(3 if name == "ball" else ())
        value = joints.get(name, zero)
        value = value if isinstance(value, dict) else {"position": value, "rate": zero}
        value = {key: np.asarray(x, dtype=float) for key, x in value.items()}
        given[name] = value["position"] if name.startswith("rolling") else value  # what rolls turns as it must
    del given["screw.slide"]  # it follows the turn
    keys = ("position", "rotation", "velocity", "angular_velocity")
    first = {f"{kind}_a": bodies.get(f"{kind}_a", {}) for kind in JOINT_TYPES}
    return place(
        system,
        params,
        given,
        {n: {k: np.asarray(b.get(k, np.zeros(3)), dtype=float) for k in keys} for n, b in first.items()},
    )


def tops(step: float, *, racket=(1e-2, 2e-2, 3e-2), top=(8e-4, 8e-4, 1e-3)) -> tuple[System, Params]:
    """A free body `racket`, and a heavy top 0.1 m above a ball joint; both fast."""
    return mechanism(
        step,
        DOWN,
        bodies={
            "racket": {"mass": 1.0, "inertia": racket},
            "top": {"mass": 1.0, "com": (0, 0, 0.1), "inertia": top},
        },
        joints={"pivot": {"type": "ball", "child": "top"}},
    )


def quaternion_matrix(e: np.ndarray) -> np.ndarray:
    """Rotation matrices of quaternions [w, x, y, z], in numpy and by another formula than the package's."""
    w, u = e[..., 0, None, None], e[..., 1:]
    cross = np.cross(np.eye(3), u[..., None, :]).swapaxes(-1, -2) * -1
    return (w**2 - np.sum(u * u, axis=-1)[..., None, None]) * np.eye(3) + 2 * (
        u[..., :, None] * u[..., None, :] + w * cross
    )


def inertia_matrices(params: Params) -> np.ndarray:
    """(bodies, 3, 3) [kg m^2], body axes."""
    xx, yy, zz, xy, xz, yz = np.asarray(params.inertia).T
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]).transpose(2, 0, 1)


def rotation_quaternion(p: np.ndarray) -> np.ndarray:
    """Quaternion of a rotation vector, not zero, in numpy."""
    angle = np.linalg.norm(p, axis=-1, keepdims=True)
    return np.concatenate([np.cos(angle / 2), np.sin(angle / 2) / angle * p], axis=-1)
