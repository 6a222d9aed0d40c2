"""A scene from an MJCF file moves as MuJoCo moves the file: two engines, one motion, to the order of the step."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from mjcf.models import LOOPS, TREES, mujoco, mujoco_path, text, write

import spookax as sx
from spookax.mjcf import import_mjcf

TIME, STEPS, CONTROL = 0.2, 200, 0.3
FLOOR = 3e-8  # what constraints give way by: the weld in MuJoCo 2.8e-8, the largest of its `efc_pos` [m or rad]


@pytest.mark.slow
@pytest.mark.parametrize("names", [TREES, LOOPS], ids=["trees", "loops"])
def test_both_engines_move_alike(names, tmp_path):
    """Centres of mass over 0.2 s, from `qpos0` under constant controls, at 2 ms and at 1 ms."""
    file = write(tmp_path, text(*names))
    scene = import_mjcf(file).scene
    theirs = mujoco_path(mujoco.MjModel.from_xml_path(str(file)), TIME, 1e-3, CONTROL)
    system, params, state = sx.load(scene)
    controls = jnp.full((STEPS, len(scene.motors)), CONTROL)
    rollout = eqx.filter_jit(sx.rollout)
    errors = []
    for every in (2, 1):
        finer = eqx.tree_at(lambda p: p.step, params, jnp.asarray(every * 1e-3))
        ours = np.asarray(rollout(system, finer, state, controls).r)[: STEPS // every + 1]
        errors.append(np.abs(ours - theirs[::every]).max(axis=(0, 2)))
    moved = np.abs(theirs - theirs[0]).max(axis=(0, 2))
    assert moved.max() > 0.1 if names is TREES else moved.max() > 0.01
    for body, coarse, fine in zip(scene.bodies, *errors, strict=True):
        assert coarse < 4e-4, body
        assert fine < FLOOR or coarse / fine > 0.93 * 4, body
