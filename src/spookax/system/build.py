"""From a scene (plain Python) to the static system and its parameters (arrays)."""

import jax
import jax.numpy as jnp
import numpy as np

from .._typing import Array, Float
from ..math import rotation
from ..scene import Scene
from ..scene.parts import JointPosition, JointRate
from .params import Params
from .system import WORLD, Axis, Joint, Motor, Sensor, System, saddle_pattern, spanning_tree


def build(scene: Scene, constraints: tuple = (), always_dry: frozenset[str] = frozenset()) -> tuple[System, Params]:
    """The static system and the parameters of a scene.

    **Arguments:** `scene`, as read by `spookax.scene.read_scene`; `constraints`: the user's own rows
    (`spookax.constraints.AbstractHolonomic`, `AbstractNonholonomic`), which name the bodies they act on.

    An axis gets a dry-friction row only if its Coulomb level or Stribeck excess is positive in the scene, or if its
    joint is in `always_dry`: rows are topology, levels are parameters.
    """
    names = tuple(scene.bodies)
    number = {name: i for i, name in enumerate(names)} | {"world": WORLD}
    joints = tuple(Joint(n, j.type, number[j.parent], number[j.child]) for n, j in scene.joints.items())
    axes = tuple(
        Axis(i, j.type == "hinge", j.friction.coulomb > 0 or j.friction.stribeck.excess > 0 or n in always_dry)
        for i, (n, j) in enumerate(scene.joints.items())
        if j.type in ("hinge", "prismatic")
    )
    axis_joints = [list(scene.joints.values())[a.joint] for a in axes]
    axis_of = {joints[a.joint].name: i for i, a in enumerate(axes)}
    motors = tuple(Motor(n, axis_of[m.joint], tuple(c.order for c in m.cogging)) for n, m in scene.motors.items())
    sensors = tuple(
        Sensor(
            n,
            s.type,
            axis_of[s.joint] if isinstance(s, JointPosition | JointRate) else number[s.body],
            tuple(c.order for c in s.cyclic_error) if isinstance(s, JointPosition) else (),
        )
        for n, s in scene.sensors.items()
    )
    tree = spanning_tree(len(names), joints)
    pattern = saddle_pattern(len(names), joints, axes, constraints, number, tree)
    system = System(names, joints, axes, motors, sensors, constraints, tree, pattern)

    defaults = scene.regularisation

    def array(values: list, *shape: int) -> jnp.ndarray:
        return jnp.asarray(np.asarray(values, dtype=float).reshape(-1, *shape))

    along = [j.axis if j.type in ("hinge", "prismatic") else (0.0, 0.0, 1.0) for j in scene.joints.values()]
    parent_frames = array([_frame_quaternion(np.asarray(axis, dtype=float)) for axis in along], 4)
    turns = array([j.rotation for j in scene.joints.values()], 3)
    bodies = list(scene.bodies.values())
    motor_specs = list(scene.motors.values())
    offsets = np.zeros((len(sensors), 6))
    points = np.zeros((len(sensors), 3))
    for i, s in enumerate(scene.sensors.values()):
        offsets[i, : sensors[i].size] = getattr(s, "offset", 0.0)
        if s.type == "point_position":
            points[i] = s.at
    params = Params(
        step=jnp.asarray(float(scene.step)),
        gravity=jnp.asarray(np.asarray(scene.gravity, dtype=float)),
        tilt=jnp.asarray(np.asarray(scene.tilt, dtype=float)),
        v_creep=jnp.asarray(float(defaults.v_creep)),
        mass=array([b.mass for b in bodies]),
        com=array([b.com for b in bodies], 3),
        inertia=array([[getattr(b.inertia, k) for k in ("xx", "yy", "zz", "xy", "xz", "yz")] for b in bodies], 6),
        at=array([j.at for j in scene.joints.values()], 3),
        child_at=array([j.child_at for j in scene.joints.values()], 3),
        parent_frame=parent_frames,
        child_frame=_turned_back(parent_frames, turns),
        relative_compliance=array(
            [_or(j.relative_compliance, defaults.relative_compliance) for j in scene.joints.values()]
        ),
        relaxation=array([_or(j.relaxation_steps, defaults.relaxation_steps) for j in scene.joints.values()]),
        viscous=array([j.friction.viscous for j in axis_joints]),
        coulomb=array([j.friction.coulomb for j in axis_joints]),
        stribeck_excess=array([j.friction.stribeck.excess for j in axis_joints]),
        stribeck_speed=array([j.friction.stribeck.speed for j in axis_joints]),
        stribeck_exponent=array([j.friction.stribeck.exponent for j in axis_joints]),
        stiffness=array([j.spring.stiffness for j in axis_joints]),
        rest=array([j.spring.rest for j in axis_joints]),
        armature=array([j.armature for j in axis_joints]),
        gain=array([m.gain for m in motor_specs]),
        back_emf=array([getattr(m, "back_emf", 0.0) for m in motor_specs]),
        bias=array([m.bias for m in motor_specs]),
        cogging=array([[c.cos, c.sin] for m in motor_specs for c in m.cogging], 2),
        offset=jnp.asarray(offsets),
        cyclic=array([[c.cos, c.sin] for s in scene.sensors.values() for c in getattr(s, "cyclic_error", [])], 2),
        point=jnp.asarray(points),
        rows=tuple({k: jnp.asarray(float(v)) for k, v in c.defaults().items()} for c in constraints),
        row_compliance=array([defaults.relative_compliance for _ in constraints]),
        row_relaxation=array([defaults.relaxation_steps for _ in constraints]),
    )
    return system, params


@jax.jit
def _turned_back(frames: Float[Array, "joints 4"], turns: Float[Array, "joints 3"]) -> Float[Array, "joints 4"]:
    """Joint frames in the children's axes, which are turned against the parents'."""
    return rotation.multiply(rotation.conjugate(rotation.exp(turns)), frames)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _frame_quaternion(axis: np.ndarray) -> np.ndarray:
    """Quaternion of a right-handed frame whose z axis is `axis`: the shortest turn from z."""
    n = axis / np.linalg.norm(axis)
    if n[2] < -1 + 1e-12:
        return np.array([0.0, 1.0, 0.0, 0.0])
    q = np.array([1 + n[2], -n[1], n[0], 0.0])
    return q / np.linalg.norm(q)
