"""Why a computation stopped. Each layer's enumeration extends the one below, so a cause survives upwards."""

import equinox as eqx
import jax
import jax.numpy as jnp


class MLCP_RESULTS(eqx.Enumeration):
    """Why a complementarity solver stopped. Anything but `successful` means: do not trust the numbers."""

    successful = ""
    secondary_ray = (
        "The complementarity problem was not solved: the pivoting ran off along a ray. Likely causes: a "
        "redundant constraint without regularisation, or a matrix N that is not positive definite (a "
        "problem without solution, as Coulomb's law may be under `contacts.friction: pyramid`: take less friction, "
        "a shorter step, or the cone)."
    )
    pivot_limit = (
        "The complementarity problem was not solved within the limit of pivots. Likely cause: a matrix N "
        "that is close to singular. Raise the regularisation (relative compliance), or `max_pivots` of the "
        "solver."
    )
    residual_check_failed = (
        "The complementarity problem was not solved to its tolerance: the candidate solution violates its "
        "conditions. Likely causes: N too badly conditioned for the arithmetic (raise the regularisation, "
        "or use float64), or an iterative solver with too few sweeps."
    )
    level_limit = (
        "A level that follows other impulses (`friction.bearing`, or a row of one's own) did not settle: each pass of "
        "Newton's method gave another. Likely cause: several of them that lock each other. Lower the factor, or the "
        "step size."
    )
    contact_limit = (
        "The contacts of a step were not solved within the limit of Newton's iterations. Likely causes: contacts that "
        "are too stiff for the arithmetic (raise `contacts.relative_compliance`, or use float64), bodies that start "
        "deep inside each other, or a step size too large for the motion."
    )
    contact_slip = (
        "The slip of contacts did not settle within the limit of passes (`contacts.passes: settled`). Coulomb's law "
        "may have no solution there, or several: use a number of passes, a smaller friction, or a shorter step."
    )
    contact_slots = (
        "More pairs of surfaces were near each other than there are slots for, so that some contacts were left out. "
        "Raise `contacts.slots`: it counts the pairs of one kind, such as box on box."
    )
    nonfinite_input = (
        "The complementarity problem has a NaN or an infinity in N or q, or bounds that are NaN, crossed "
        "or both infinite on one side. Look for a zero mass, a zero step size, or a state that has already "
        "diverged."
    )


class STEP_RESULTS(MLCP_RESULTS):  # pyright: ignore
    """Why a step ended: everything the complementarity solver says, and what only a step can say."""

    nonfinite_velocity = (
        "The step produced a velocity that is not finite. Check masses, inertias and the step size: an "
        "unstable motion grows before it overflows, so look at the steps before."
    )


class EPISODE_RESULTS(STEP_RESULTS):  # pyright: ignore
    """Why an episode of an environment failed."""

    nonfinite_action = "The action has a NaN or an infinity in it. Look at what the agent was told, and at its weights."


class ESTIMATE_RESULTS(STEP_RESULTS):  # pyright: ignore
    """Why an estimation ended."""

    iteration_limit = (
        "The estimation reached its iteration limit before the cost settled. Look at the convergence plot: "
        "if the cost still falls, resume with a larger `max_iterations`; if it oscillates, raise "
        "`noise_scale` or add substeps."
    )
    no_progress = (
        "The estimation went on for a while, and then no step lowered the cost any more, although the cost is not at "
        "its minimum. Likely causes: dry friction that sticks and slips (raise the last `friction_speed`), or a step "
        "size too large for the motion."
    )
    stuck_at_start = (
        "No step from the start values lowered the cost: the estimation went nowhere. Likely causes: a start too far "
        "off (give better ones, or more `restarts`), a wrong sign or unit in the recording, or a step size too large "
        "for the motion."
    )
    step_failed = (
        "The estimation ended, but steps of the simulator along the estimate were not solved: its numbers follow from "
        "motions that the simulator could not compute."
    )
    nonfinite = (
        "The estimation met numbers that are not finite: the simulator diverged along the trajectory. "
        "Halve the step size, and check the start values and bounds of the parameters."
    )
    no_information = (
        "The estimation converged, but neither the recordings nor a prior say anything about some parameter, or "
        "combination of parameters: its standard deviation is infinite, its value where the search left it. Give it "
        "a prior, hold it, or record a motion that depends on it."
    )
    interrupted = "The estimation was interrupted; the last iterate was kept. Resume it with `--resume`."
    local_minimum = (
        "The estimation converged, but the cost is far above what its noise levels explain: a local "
        "minimum or a model that cannot explain the recording. Look at the residuals for the signal that does not fit."
    )


def no_failure() -> STEP_RESULTS:
    """The result of no step yet, as an array that a loop may carry."""
    return jax.tree.map(jnp.asarray, STEP_RESULTS.successful)


def worst(results: STEP_RESULTS) -> STEP_RESULTS:
    """One result for those of many steps: a failure if there is any."""
    return jax.tree.map(jnp.max, results)
