"""MuJoCo as the peer of the simulation benchmark: the same mechanisms as MJCF text. Optional."""

import dataclasses
import importlib
import importlib.util
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

_TILT = (0.075, -0.035)  # of the Furuta pendulum's base about x, then y [rad]
_DOWN = 9.81 * np.array(
    [math.sin(_TILT[1]), -math.sin(_TILT[0]) * math.cos(_TILT[1]), -math.cos(_TILT[0]) * math.cos(_TILT[1])]
)

MJCF = {
    "furuta": f"""
<mujoco>
  <compiler angle="radian"/>
  <option timestep="0.0025" gravity="{_DOWN[0]} {_DOWN[1]} {_DOWN[2]}"/>
  <worldbody>
    <body name="arm">
      <inertial pos="0 0 0" mass="0.25" diaginertia="2.5e-3 2.5e-3 2.25e-3"/>
      <joint name="shoulder" axis="0 0 1" damping="7.5e-4" frictionloss="3.75e-3" stiffness="1.5e-3" springref="0.75"/>
      <body name="pendulum" pos="0.12 0 0">
        <inertial pos="0 0 -0.08" mass="0.1" diaginertia="3.0e-4 2.1e-4 3.0e-4"/>
        <joint name="elbow" axis="1 0 0" damping="2.25e-4" frictionloss="3.0e-4"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="shoulder" gear="0.01"/></actuator>
</mujoco>""",
    "four_bar": """
<mujoco>
  <compiler angle="radian"/>
  <option timestep="0.002" gravity="0 0 -9.81"/>
  <default><geom type="box" density="7850" contype="0" conaffinity="0"/></default>
  <worldbody>
    <body name="crank">
      <joint name="drive" axis="0 1 0" damping="1e-3"/>
      <geom size="0.05 0.005 0.01" pos="0.05 0 0"/>
      <body name="coupler" pos="0.1 0 0">
        <joint name="elbow" axis="0 1 0"/>
        <geom size="0.175 0.005 0.01" pos="0.175 0 0"/>
        <site name="end" pos="0.35 0 0"/>
      </body>
    </body>
    <body name="rocker" pos="0.4 0 0">
      <joint name="ground" axis="0 1 0" frictionloss="1e-3"/>
      <geom size="0.15 0.005 0.01" pos="0.15 0 0"/>
      <site name="wrist" pos="0.3 0 0"/>
    </body>
  </worldbody>
  <equality><connect site1="end" site2="wrist"/></equality>
  <actuator><motor joint="drive"/></actuator>
</mujoco>""",
    "pendulum": """
<mujoco>
  <compiler angle="radian"/>
  <option timestep="0.005" gravity="0 0 -9.81"/>
  <worldbody>
    <body name="rod" pos="0 0 1">
      <inertial pos="0 0 -0.25" mass="0.2" diaginertia="4.17e-3 4.17e-3 1.0e-5"/>
      <joint name="pivot" axis="0 1 0" damping="1e-3" frictionloss="2e-3"/>
    </body>
  </worldbody>
</mujoco>""",
}


def installed() -> bool:
    """Whether the peer can be imported."""
    return importlib.util.find_spec("mujoco") is not None


@dataclasses.dataclass
class Peer:
    """One mechanism in MuJoCo, rolled out by its own loop in C++ on one thread."""

    model: Any
    data: Any
    module: Any

    @classmethod
    def of(cls, name: str, start: Mapping[str, float]) -> "Peer":
        """The mechanism of this name, its joints at these positions [rad], at rest."""
        module: Any = importlib.import_module("mujoco")
        model = module.MjModel.from_xml_string(MJCF[name])
        data = module.MjData(model)
        for joint, position in start.items():
            if (index := module.mj_name2id(model, module.mjtObj.mjOBJ_JOINT, joint)) >= 0:
                data.qpos[index] = position
        return cls(model, data, module)

    @property
    def version(self) -> str:
        """Version of the package."""
        return self.module.__version__

    def joints(self) -> list[str]:
        """Names of the joints, in the order of the positions."""
        return [self.model.joint(i).name for i in range(self.model.njnt)]

    def rollout(self, controls: np.ndarray) -> np.ndarray:
        """Positions after every step, shape (batch, steps, joints), of controls of shape (batch, steps, motors)."""
        kind = self.module.mjtState.mjSTATE_FULLPHYSICS
        start = np.zeros((1, self.module.mj_stateSize(self.model, kind)))
        self.module.mj_getState(self.model, self.data, start[0], kind)
        scratch = self.module.MjData(self.model)
        batch, steps, motors = controls.shape
        run = importlib.import_module("mujoco.rollout").rollout
        given = {"control": controls} if motors else {"nstep": steps}
        states, _ = run(self.model, scratch, np.repeat(start, batch, axis=0), **given)
        return states[:, :, 1 : 1 + self.model.nq]
