"""Small mechanisms as MJCF, and how MuJoCo moves them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mujoco: Any = pytest.importorskip("mujoco", reason="MuJoCo is not installed (extra `mjcf`)")  # skips who imports this

HEAD = """<mujoco>
  <compiler angle="radian"/>
  <option timestep="5e-5" integrator="RK4" gravity="0.4 -0.3 -9.7"/>
  <default><geom contype="0" conaffinity="0" density="800"/>
    <equality solref="2e-4 1" solimp="0.9999 0.9999 1e-3"/></default>
"""
DOUBLE = """<worldbody>
  <body name="upper" pos="0.1 0.2 0.5" quat="0.9 0.1 0.3 0.2">
    <joint name="shoulder" axis="0.2 1 0.1" pos="0.01 0 0.02" damping="2e-2" armature="3e-3" ref="0.3"/>
    <geom type="box" size="0.02 0.03 0.15" pos="0.02 0 -0.15" euler="0.1 0.2 0.3"/>
    <body name="lower" pos="0 0 -0.3" quat="0.8 0.3 -0.2 0.1">
      <joint name="elbow" axis="0 1 0" stiffness="0.5" springref="0.4" ref="-0.2"/>
      <geom type="capsule" size="0.02 0.1" pos="0 0 -0.1"/>
      <body name="tip" pos="0.02 0 -0.2" quat="0.7 0.1 0.7 0"><geom type="sphere" size="0.03"/></body>
    </body>
  </body>
</worldbody>
<actuator><motor name="push" joint="shoulder" gear="1.5"/>
  <position name="servo" joint="elbow" kp="2" kv="0.1"/></actuator>
"""
FURUTA = """<worldbody>
  <body name="arm">
    <inertial pos="0 0 0" mass="0.25" fullinertia="2.5e-3 2.4e-3 2.25e-3 1e-4 2e-4 -1e-4"/>
    <joint name="shoulder" axis="0 0 1" damping="7.5e-4" armature="1e-4"/>
    <body name="pendulum" pos="0.12 0 0">
      <inertial pos="0 0.02 -0.08" mass="0.1" diaginertia="3.0e-4 2.1e-4 3.0e-4"/>
      <joint name="elbow" axis="1 0 0" damping="2.25e-4" ref="0.8"/>
    </body>
  </body>
</worldbody>
<actuator><velocity name="drive" joint="shoulder" kv="0.01"/>
  <general name="brake" joint="elbow" gainprm="0.02" biastype="affine" biasprm="0.005 0 -0.003"/></actuator>
"""
FOUR_BAR = """<worldbody>
  <body name="crank">
    <joint name="drive" axis="0 1 0" damping="1e-3" frictionloss="1e-3"/>
    <geom type="box" size="0.01 0.005 0.05" pos="0 0 0.05"/>
    <body name="coupler" pos="0 0 0.1">
      <joint name="elbow" axis="0 1 0"/>
      <geom type="box" size="0.175 0.005 0.01" pos="0.175 0 0"/>
    </body>
  </body>
  <body name="rocker" pos="0.35 0 -0.2">
    <joint name="ground" axis="0 1 0"/>
    <geom type="box" size="0.005 0.005 0.15" pos="0 0 0.15"/>
  </body>
</worldbody>
<equality><connect name="wrist" body1="coupler" body2="rocker" anchor="0.35 0 0"/></equality>
"""
PLANAR = """<worldbody>
  <body name="base" pos="0.2 0 0" quat="0.9 0.2 0 0.1">
    <joint name="rootx" type="slide" axis="1 0 0" damping="0.5"/>
    <joint name="rootz" type="slide" axis="0 0 1" stiffness="40" springref="0.05"/>
    <joint name="rooty" type="hinge" axis="0 1 0" pos="0.02 0.01 0.03" damping="1e-2" ref="0.2"/>
    <geom type="box" size="0.1 0.05 0.04"/>
    <body name="arm" pos="0 0 0.1">
      <joint name="reach" type="slide" axis="0.3 0.2 1" ref="0.02" stiffness="50" damping="1"/>
      <geom type="cylinder" size="0.02 0.1" pos="0.02 0.01 0.1"/>
    </body>
  </body>
</worldbody>
"""
BALL = """<worldbody>
  <body name="rod" pos="0 0 1" quat="0.9 0 0.4 0.1">
    <joint name="hang" type="ball" pos="0 0.01 0"/>
    <geom type="box" size="0.02 0.03 0.2" pos="0.05 0 -0.2"/>
  </body>
  <body name="stone" pos="1 2 3" quat="0.5 0.5 -0.1 0.2"><freejoint/><geom type="box" size="0.1 0.2 0.3" pos="0.1 0 0"/>
    <body name="tail" pos="0.1 0.2 0.3" quat="0.7 0 0.2 0.3">
      <joint name="wag" axis="1 0.2 0" stiffness="3" springref="1"/>
      <geom type="capsule" size="0.03 0.2" pos="0 0 0.2"/>
    </body>
  </body>
</worldbody>
"""
UNIVERSAL = """<worldbody>
  <body name="cross" pos="0.1 0 0.3" quat="0.8 0.1 0.2 0.3">
    <joint name="yaw" axis="0 0.6 0.8" pos="0.02 0.06 0.08" damping="1e-2" ref="0.3"/>
    <joint name="pitch" axis="1 0 0" pos="0.07 0 0" stiffness="0.3" ref="-0.4"/>
    <geom type="box" size="0.05 0.02 0.1" pos="0 0.05 -0.1"/>
    <body name="bolt" pos="0 0 -0.2" quat="0.9 0.3 0 0">
      <joint name="slip" type="slide" axis="0 1 0" stiffness="60" damping="0.3" ref="0.01"/>
      <joint name="turn" type="hinge" axis="0 1 0" pos="0.02 0 0.01" damping="1e-3" armature="1e-4" ref="0.5"/>
      <geom type="box" size="0.04 0.03 0.02" pos="0.05 0 0.02"/>
    </body>
  </body>
</worldbody>
"""
HIPS = """<worldbody>
  <body name="pelvis" pos="0.1 0 0.3" quat="0.8 0.1 0.2 0.3">
    <joint name="along" type="slide" axis="0.6 0 0.8" stiffness="30" damping="0.5"/>
    <joint name="across" type="slide" axis="0 1 0" stiffness="20" springref="0.05"/>
    <geom type="box" size="0.05 0.1 0.04" pos="0.02 0 0"/>
    <body name="thigh" pos="0 0.1 -0.1" quat="0.9 0.3 0 0.1">
      <joint name="twist" axis="0 0 1" pos="0.01 0 0.02" damping="1e-2" ref="0.2"/>
      <joint name="flex" axis="1 0 0" pos="0.01 0 0.02" stiffness="0.5" springref="-0.3"/>
      <joint name="lift" axis="0 1 0" pos="0.01 0 0.02" ref="0.1"/>
      <geom type="box" size="0.03 0.02 0.1" pos="0.02 0 -0.1"/>
      <body name="shin" pos="0 0 -0.2" quat="0.9 0 0.3 0">
        <joint name="knee" type="ball" pos="0.01 0 0" damping="2e-2" stiffness="0.4"/>
        <geom type="box" size="0.02 0.03 0.1" pos="0.02 0 -0.1"/>
      </body>
    </body>
  </body>
</worldbody>
"""
GEAR = """<worldbody>
  <body name="wheel"><joint name="a" axis="0 1 0" ref="0.1"/>
    <geom type="box" size="0.1 0.02 0.05" pos="0.05 0 0"/></body>
  <body name="rack" pos="0 0 0.3"><joint name="b" type="slide" axis="1 0 0" ref="0.2"/>
    <geom type="box" size="0.1 0.02 0.02"/></body>
</worldbody>
<equality><joint name="gear" joint1="b" joint2="a" polycoef="0 0.15 0 0 0"/></equality>
"""
GLUED = """<worldbody>
  <body name="cart" pos="0.4 0 0.3" quat="0.9 0.1 0.2 0.3"><joint name="c" axis="1 0.3 0" pos="0 0.1 0.1"/>
    <geom type="sphere" size="0.05"/></body>
  <body name="cap" pos="0.4 0.1 0.4" quat="0.8 0.5 0.1 0.2"><freejoint/><geom type="box" size="0.03 0.02 0.05"/></body>
</worldbody>
<equality><weld name="glue" body1="cart" body2="cap" anchor="0.1 0.2 0.3"/></equality>
"""
MODELS = {
    "double": DOUBLE,
    "furuta": FURUTA,
    "four_bar": FOUR_BAR,
    "planar": PLANAR,
    "ball": BALL,
    "universal": UNIVERSAL,
    "hips": HIPS,
    "gear": GEAR,
    "glued": GLUED,
}


TREES = ("double", "furuta", "planar", "ball", "universal", "hips", "glued")
LOOPS = ("four_bar", "gear")


def text(*names: str) -> str:
    """Some of the mechanisms beside each other; every name has that of its mechanism and a dot in front."""
    sections: dict[str, str] = {"worldbody": "", "actuator": "", "equality": ""}
    for name in names:
        own = re.sub(r'\b(name|joint|joint1|joint2|body1|body2)="', rf'\1="{name}.', MODELS[name])
        for section in sections:
            sections[section] += "".join(re.findall(rf"<{section}>(.*?)</{section}>", own, re.DOTALL))
    return HEAD + "".join(f"<{key}>{inner}</{key}>\n" for key, inner in sections.items() if inner) + "</mujoco>\n"


def write(folder: Path, model: str, name: str = "model.xml") -> Path:
    """A file with the text of a model, or with what lies inside of `<mujoco>`."""
    path = folder / name
    path.write_text(model if model.startswith("<mujoco") else f"<mujoco>{model}</mujoco>")
    return path


def mujoco_path(model: Any, time: float, every: float, control: float = 0.0, key: bool = False) -> np.ndarray:
    """Centres of mass of the bodies that move, with what is welded to them, every so often. (times, bodies, 3) [m]"""
    data = mujoco.MjData(model)
    if key:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    data.ctrl[:] = control
    weld, mass = np.array(model.body_weldid), np.array(model.body_mass)
    moving = [b for b in range(1, model.nbody) if weld[b] == b]
    path = []
    for step in range(round(time / model.opt.timestep) + 1):
        if step % round(every / model.opt.timestep) == 0:
            mujoco.mj_kinematics(model, data)
            mujoco.mj_comPos(model, data)
            path.append([mass[weld == b] @ data.xipos[weld == b] / mass[weld == b].sum() for b in moving])
        mujoco.mj_step(model, data)
    return np.array(path)
