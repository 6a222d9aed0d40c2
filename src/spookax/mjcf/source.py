"""A compiled model, and where its bodies went: which body of the scene carries each, and in what pose."""

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from spookax.mjcf.compiler import Names
from spookax.mjcf.frame_poses import Pose, numbers
from spookax.mjcf.missing import Report, listed
from spookax.scene.inertia import from_matrix

WORLD = "world"


@dataclass(frozen=True)
class Carried:
    """What a body of the model became: a body of the scene, or a part of one or of the world."""

    owner: str  # name of the scene's body, or `world`
    pose: Pose  # of the body's frame in the owner's
    root: bool = False  # whether the owner was made for this body


@dataclass
class Source:
    """The model that is read, and what the parts of a scene were made of, by id."""

    mujoco: ModuleType
    model: Any
    report: Report
    bodies: list[Carried] = field(default_factory=lambda: [Carried(WORLD, Pose())])
    axes: dict[int, str] = field(default_factory=dict)  # joint of the model -> axis of the scene, `joint.axis`
    balls: dict[int, str] = field(default_factory=dict)  # joint of the model -> joint of the scene
    loops: dict[int, str] = field(default_factory=dict)  # equality -> joint or coupling
    motors: dict[int, str] = field(default_factory=dict)
    sensors: dict[int, str] = field(default_factory=dict)

    def name(self, kind: str, index: int) -> str:
        """Name of an element of the model, or its kind and number. `kind` as MuJoCo's `mjOBJ_` constants have it."""
        found = self.mujoco.mj_id2name(self.model, getattr(self.mujoco.mjtObj, f"mjOBJ_{kind.upper()}"), index)
        return found or f"{kind}{index}"

    def geom_pose(self, g: int) -> Pose:
        """Of a geom in its body of the model."""
        return Pose.of(self.model.geom_pos[g], self.model.geom_quat[g])

    def off(self, feature: str) -> bool:
        """Whether the model's flags switch a feature off, named as in MuJoCo's `mjDSBL_` constants."""
        return bool(self.model.opt.disableflags & getattr(self.mujoco.mjtDisableBit, f"mjDSBL_{feature}"))

    def is_a(self, value: int, constant: str) -> bool:
        """Whether a number is the one that MuJoCo calls `constant`, such as `mjJNT_HINGE`; older ones lack some."""
        kinds = {"JNT": "Joint", "EQ": "Eq", "TRN": "Trn", "SENS": "Sensor", "GEOM": "Geom", "OBJ": "Obj"}
        kinds |= {"GAIN": "Gain", "BIAS": "Bias", "DYN": "Dyn"}
        kind = getattr(self.mujoco, f"mjt{kinds[constant[2:].partition('_')[0]]}")
        return constant in kind.__members__ and value == int(kind.__members__[constant])

    def optional(self, array: str, index: int) -> float:
        """Largest entry of a row of an array that not every version of MuJoCo has; 0 where it is lacking."""
        rows = getattr(self.model, array, None)
        return 0.0 if rows is None or not len(rows) else float(np.max(np.abs(rows[index])))


def carry_bodies(source: Source, names: Names) -> None:
    """Decide what every body of the model becomes.

    One that has a joint becomes a body. One without is welded to its parent, and becomes a part of it. A free body's
    frame is moved to the world's, because that is where a scene starts what nothing holds.
    """
    model = source.model
    for b in range(1, model.nbody):
        pose = Pose.of(model.body_pos[b], model.body_quat[b])
        parent, first = source.bodies[model.body_parentid[b]], model.body_jntadr[b]
        if model.body_jntnum[b] == 0:
            source.bodies.append(Carried(parent.owner, parent.pose @ pose))
            continue
        name = names.new(source.name("body", b), f"body{b}")
        free = source.is_a(model.jnt_type[first], "mjJNT_FREE")
        source.bodies.append(Carried(name, pose if free else Pose(), root=True))


def masses(source: Source) -> dict[str, dict[str, Any]]:
    """Mass [kg], centre of mass [m] and inertia [kg m^2] of every body of the scene, from all of its parts.

    The world is immovable: what is welded to it needs no mass.
    """
    parts: dict[str, list[tuple[float, np.ndarray, np.ndarray]]] = {}
    for b, carried in enumerate(source.bodies):
        if carried.owner != WORLD:
            parts.setdefault(carried.owner, []).append(part(source, b))
    return {name: total(several) for name, several in parts.items()}


def part(source: Source, b: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre of mass and inertia about it of one body of the model, in the frame of its owner."""
    model, pose = source.model, source.bodies[b].pose
    inertial = pose @ Pose.of(model.body_ipos[b], model.body_iquat[b])
    inertia = inertial.rotation @ np.diag(model.body_inertia[b]) @ inertial.rotation.T
    return float(model.body_mass[b]), inertial.at, inertia


def total(parts: list[tuple[float, np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """Several parts as one body, by the parallel axis theorem; a part with negative mass is taken away."""
    mass = sum(m for m, _, _ in parts)
    com = sum((m * c for m, c, _ in parts), np.zeros(3)) / mass if mass > 0 else np.zeros(3)
    inertia = np.zeros((3, 3))
    for m, c, own in parts:
        d = c - com
        inertia += own + m * (d @ d * np.eye(3) - np.outer(d, d))
    smallest = 1e-12 * np.abs(inertia).max()
    inertia = np.where(np.abs(inertia) < smallest, 0.0, (inertia + inertia.T) / 2)
    return {"mass": float(mass), "com": numbers(com), "inertia": from_matrix(inertia)}


def list_bodies(source: Source) -> None:
    """What bodies of the model do that those of a scene do not."""
    model, report = source.model, source.report
    for b in range(1, model.nbody):
        what = f"body '{source.name('body', b)}'"
        if model.body_mocapid[b] >= 0:
            report.add(what, "is a mocap body, moved from outside; it stands still here", "Join it by a joint.")
        if model.body_gravcomp[b] != 0:
            cure = "Delete `gravcomp`; apply the force by a motor."
            report.add(what, "has its weight compensated (`gravcomp`), which is not known here", cure)
    for kind, count in (("tendon", model.ntendon), ("flex", model.nflex), ("skin", model.nskin)):
        if count:
            all_names = listed(source.name(kind, i) for i in range(count))
            cure = "Delete them, or say them by couplings, or by joints of type `line`."
            report.add(f"{kind}s", f"there are none here: {all_names}", cure if kind == "tendon" else "Delete them.")
    if model.nplugin:
        report.add("plugins", f"{model.nplugin} of them are not run here", "Delete them.")
    if (model.opt.density or model.opt.viscosity) and model.nbody > 1:
        report.add("option", "there is no fluid here (`density`, `viscosity`)", "Set both to 0.")
