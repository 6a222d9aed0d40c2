"""What a batch seldom needs: as every entry by itself, and a branch, not a selection, in the compiled program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spookax.math.rare import where_needed


def rooted(x):
    return where_needed(x > 1, jnp.sqrt, jnp.zeros_like, x)


@pytest.mark.parametrize("values", [[0.5, 4.0, 9.0], [0.1, 0.5], [2.0]])
def test_each_entry_is_as_by_itself_with_its_derivatives(values):
    batch = jnp.array(values)
    expected = np.where(batch > 1, np.sqrt(batch), 0.0)
    slopes = np.where(batch > 1, 0.5 / np.sqrt(batch), 0.0)
    np.testing.assert_allclose(jax.jit(jax.vmap(rooted))(batch), expected)
    np.testing.assert_allclose(jax.vmap(jax.vmap(rooted))(batch[None]), expected[None])
    np.testing.assert_allclose([rooted(x) for x in batch], expected)
    for by in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jax.vmap(by(rooted))(batch), slopes)
        np.testing.assert_allclose(by(lambda x: jnp.sum(jax.vmap(rooted)(x)))(batch), slopes)


def test_a_batch_without_need_does_not_do_the_work():
    asked = []

    def noted(x):
        jax.debug.callback(lambda: asked.append(1))
        return jnp.sqrt(x)

    @jax.jit
    @jax.vmap
    def program(x):
        return where_needed(x > 1, noted, jnp.zeros_like, x)

    jax.block_until_ready(program(jnp.array([0.1, 0.5])))
    jax.effects_barrier()
    assert not asked
    jax.block_until_ready(program(jnp.array([0.1, 5.0])))
    jax.effects_barrier()
    assert asked
