"""Actuators and sensors of a compiled model as motors and sensors of a scene."""

from typing import Any

import numpy as np

from spookax.mjcf.compiler import Names
from spookax.mjcf.frame_poses import Pose, numbers
from spookax.mjcf.source import WORLD, Source


def read_motors(source: Source) -> dict[str, Any]:
    """Motors by name."""
    names, motors = Names(), {}
    if source.off("ACTUATION"):
        return motors
    for a in range(len(source.model.actuator_trntype)):
        given, group = source.name("actuator", a), int(source.model.actuator_group[a])
        if 0 <= group < 31 and source.model.opt.disableactuator >> group & 1:
            continue
        motor = _motor(source, a, f"actuator '{given}'")
        if motor:
            source.motors[a] = names.new(given, f"actuator{a}")
            motors[source.motors[a]] = motor
    return motors


def output(source: Source, a: int) -> int:
    """Where the output of an actuator stands, by which gears are counted; its own number before MuJoCo 4."""
    first = getattr(source.model, "actuator_outadr", None)
    return a if first is None else int(first[a])


def _control(source: Source, a: int) -> int:
    first = getattr(source.model, "actuator_ctrladr", None)
    return a if first is None else int(first[a])


def geared(source: Source, j: int) -> list[tuple[int, float]]:
    """Actuators that act on a joint, and their gear."""
    model = source.model
    return [
        (a, float(model.actuator_gear[output(source, a)][0]))
        for a in range(len(model.actuator_trntype))
        if source.is_a(model.actuator_trntype[a], "mjTRN_JOINT") and model.actuator_trnid[a][0] == j
    ]


def _motor(source: Source, a: int, what: str) -> dict[str, Any] | None:
    """What has the force gear (gain u + b0 + b1 gear q + b2 gear q'), or nothing if it cannot be said."""
    model, report = source.model, source.report
    if not _plain(source, a, what):
        return None
    j, gear = int(model.actuator_trnid[a][0]), float(model.actuator_gear[output(source, a)][0])
    if j not in source.axes:
        message = "acts on a joint that has no axis here" if model.jnt_type[j] in (0, 1) else "acts on a missing joint"
        report.add(what, message, "Let it act on a hinge or slide that is known here.")
        return None
    affine = source.is_a(model.actuator_biastype[a], "mjBIAS_AFFINE")
    b_0, b_1, b_2 = model.actuator_biasprm[a][:3] if affine else (0.0, 0.0, 0.0)
    gain, bias = gear * float(model.actuator_gainprm[a][0]), gear * float(b_0)
    stiffness, damping = 0.0 - gear**2 * float(b_1), 0.0 - gear**2 * float(b_2)
    if stiffness < 0 or damping < 0:
        report.add(what, "pushes away from where it should hold (`biasprm`)", "Let `biasprm` 1 and 2 be at most 0.")
        return None
    motor: dict[str, Any] = {"joint": source.axes[j], "bias": bias}
    if stiffness > 0:
        if abs(gain - stiffness) > 1e-9 * stiffness:
            cure = "Give it `gear` 1 and `gainprm` 0 = - `biasprm` 1, as `position` does, and scale its input."
            report.add(what, "its input is not a position of its joint", cure)
            return None
        motor |= {"type": "position", "stiffness": stiffness, "damping": damping}
    elif damping > 0 and gain == damping:
        motor |= {"type": "velocity", "damping": damping}
    elif damping > 0:
        motor |= {"type": "dc", "gain": gain, "back_emf": damping}
    else:
        motor |= {"type": "torque", "gain": gain}
    bound = _bound(source, a, j, gear, motor, what)
    return {**motor, "max_force": bound} if np.isfinite(bound) else motor


def _plain(source: Source, a: int, what: str) -> bool:
    """Whether an actuator acts on a joint by an affine law; if not, or if something comes with it, that is listed."""
    model, report = source.model, source.report
    laws = {
        "its transmission is not a joint": source.is_a(model.actuator_trntype[a], "mjTRN_JOINT"),
        "has dynamics of its own (`dyntype`)": source.is_a(model.actuator_dyntype[a], "mjDYN_NONE"),
        "its gain depends on the motion or is not known here (`gaintype`)": source.is_a(
            model.actuator_gaintype[a], "mjGAIN_FIXED"
        )
        or (source.is_a(model.actuator_gaintype[a], "mjGAIN_AFFINE") and not any(model.actuator_gainprm[a][1:3])),
        "its bias is not affine (`biastype`)": source.is_a(model.actuator_biastype[a], "mjBIAS_NONE")
        or source.is_a(model.actuator_biastype[a], "mjBIAS_AFFINE"),
    }
    for message, holds in laws.items():
        if not holds:
            report.add(what, message, "Say it by `motor`, `position` or `velocity` on a hinge or slide.")
    if source.optional("actuator_delay", a):
        report.add(what, "has a delay", "Set `delay` to 0, and shift its input.")
    return all(laws.values())


def _bound(source: Source, a: int, j: int, gear: float, motor: dict[str, Any], what: str) -> float:
    """Largest torque or force [N m or N] that ranges of force and input leave; what they say beyond it is listed."""
    model, report, bound, control = source.model, source.report, np.inf, _control(source, a)
    ranges = [("forcerange", model.actuator_forcelimited[a], model.actuator_forcerange[a], abs(gear))]
    ranges += [("actuatorfrcrange", model.jnt_actfrclimited[j], model.jnt_actfrcrange[j], 1.0)]
    for key, limited, (lower, upper), scale in ranges:
        if not limited:
            continue
        if key == "actuatorfrcrange" and len(geared(source, j)) > 1:
            cure = "Bound each of them by `forcerange`, and delete `actuatorfrcrange`."
            report.add(what, "its joint bounds several actuators together", cure)
        elif lower != -upper or motor["bias"] != 0:
            cure = "Give both ends the same size, and no constant bias beside it."
            report.add(what, f"its `{key}` is not symmetric about what it gives", cure)
        else:
            bound = min(bound, scale * float(upper))
    if model.actuator_ctrllimited[control] and not source.off("CLAMPCTRL"):
        lower, upper = model.actuator_ctrlrange[control]
        if motor["type"] == "torque" and lower == -upper and motor["gain"] != 0:
            bound = min(bound, abs(motor["gain"]) * float(upper))
        else:
            cure = "Delete it (`ctrllimited`), and keep the inputs inside it."
            report.add(what, f"its input is not held within `ctrlrange`, {lower:g} to {upper:g}", cure)
    return bound


def read_sensors(source: Source) -> dict[str, Any]:
    """Sensors by name."""
    names, sensors = Names(), {}
    model = source.model
    for i in range(model.nsensor):
        given = source.name("sensor", i)
        sensor = _sensor(source, i, f"sensor '{given}'")
        if sensor:
            source.sensors[i] = names.new(given, f"sensor{i}")
            noise = float(model.sensor_noise[i])
            sensors[source.sensors[i]] = {**sensor, **({"sd": noise} if noise > 0 else {})}
    return sensors


def _sensor(source: Source, i: int, what: str) -> dict[str, Any] | None:
    model, report = source.model, source.report
    kind, target = int(model.sensor_type[i]), int(model.sensor_objid[i])
    for array in ("sensor_cutoff", "sensor_delay", "sensor_interval"):
        if source.optional(array, i):
            key = array.removeprefix("sensor_")
            report.add(what, f"its `{key}` is not known here", f"Delete `{key}`.")
    for constant, name in (("mjSENS_JOINTPOS", "joint_position"), ("mjSENS_JOINTVEL", "joint_rate")):
        if source.is_a(kind, constant):
            if target in source.axes:
                return {"type": name, "joint": source.axes[target]}
            report.add(what, "reads a joint that is missing here", "See what is said about that joint.")
            return None
    if source.is_a(kind, "mjSENS_FRAMEPOS") and model.sensor_refid[i] < 0:
        place = _place(source, int(model.sensor_objtype[i]), target)
        if place and place[0] != WORLD:
            return {"type": "point_position", "body": place[0], "at": numbers(place[1])}
    type_name = source.mujoco.mjtSensor(kind).name.removeprefix("mjSENS_").lower()
    cure = "Delete it; `jointpos`, `jointvel` and the `framepos` of a moving point are known."
    report.add(what, f"reads `{type_name}`, which is no reading here", cure)
    return None


def _place(source: Source, objtype: int, index: int) -> tuple[str, np.ndarray] | None:
    """Body of the scene that holds the origin of a frame of the model, and the point in it. [m]"""
    model = source.model
    frames = {
        "mjOBJ_XBODY": lambda: (index, np.zeros(3)),
        "mjOBJ_BODY": lambda: (index, model.body_ipos[index]),
        "mjOBJ_SITE": lambda: (model.site_bodyid[index], model.site_pos[index]),
        "mjOBJ_GEOM": lambda: (model.geom_bodyid[index], model.geom_pos[index]),
    }
    for constant, where in frames.items():
        if source.is_a(objtype, constant):
            body, point = where()
            carried = source.bodies[body]
            return carried.owner, (carried.pose @ Pose.of(point)).at
    return None
