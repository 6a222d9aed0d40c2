"""`python -m benchmarks [NAME ...]`: each benchmark in a process of its own, so that nothing is compiled before.

Without names, all that take at most a few minutes. `sensitivity` stands for its three sweeps; `peers` runs its three
parts in one process; `trust.SET` is one set of `trust`, `coverage.CASE` one case of `coverage`,
`trajectories.NAME` one mechanism, `kalman_bucy_beyond.CASE` and `kalman_bucy_real.SET` one case and one set.
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time

DEFAULT = {
    "simulation": "rollouts, batches, compile times and memory",
    "peers": "the package beside MuJoCo, MJX, Pinocchio, Drake, exudyn, as far as installed (minutes)",
    "steps": "single steps called from Python, beside MuJoCo's",
    "chain": "long chains and ladders of loops against their size",
    "accuracy": "reference motions: error and cost against the step size, order",
    "gradients": "derivatives of a rollout in both modes, of a closed loop",
    "identification": "the demo's identification and its pieces",
    "filters": "filters and smoothers beside dynamax and filterpy, as far as they are installed",
    "learned_friction.filters": "friction learnt by a network in filters, beside published numbers (minutes)",
    "linear_cost": "one linear problem against the number of recordings",
}
PARTS = {
    "gate": "steps over MuJoCo's in one run, against ratios that are kept; fails where one has grown 2.5 times",
    "gate.write": "the same, and keeps the ratios of this run (benchmarks/baseline.json)",
    "chain.followed": "a step inside an identification of 48 links with dry friction over one of `rollout`",
    "peers.speed": "of `peers`: a step alone and in batches, compile times",
    "peers.gradients": "of `peers`: derivatives of a rollout",
    "peers.accuracy": "of `peers`: energy and gaps of joints",
    "dependencies.assembly": "of `dependencies`: closing loops",
    "dependencies.boxes": "of `dependencies`: batches of box problems",
    "dependencies.solves": "of `dependencies`: small linear systems",
    "dependencies.baseline": "of `dependencies`: the demo by least squares of the simulation error",
    "primitives": "what there is to compile: primitives, fusions and compile times by part of a step and of `identify`",
    "primitives.lines": "the lines of the package that most of these primitives come from",
    "primitives.sizes": "equations of a step against bodies, joints, motors, couplings and rows of one's own",
    "sweeps": "time and digits of the several sweeps and kernels of estimators, each where another might stand",
    "sweeps.states": "of `sweeps`: covariances and factors of them",
    "sweeps.slow": "of `sweeps`: many parameters behind a small state",
    "sweeps.triangles": "of `sweeps`: rows whose weights differ",
    "learning.ours": "of `learning`: envs.learn alone",
    "learning.ppo": "of `learning`: PPO alone",
    "learning.others": "of `learning`: other tasks and other schedules by envs.learn (a quarter of an hour)",
    "contact_speed.ball": "of `contact_speed`: a ball that rolls",
    "contact_speed.box": "of `contact_speed`: a box at rest",
    "contact_speed.stack5": "of `contact_speed`: a stack of five boxes",
    "contact_speed.stack10": "of `contact_speed`: a stack of ten",
    "contact_speed.quadruped": "of `contact_speed`: twelve joints on four feet",
    "contact_speed.pile20": "of `contact_speed`: twenty boxes that fall onto each other",
    "contact_speed.pile100": "of `contact_speed`: a hundred",
}
FAMILIES = (  # whose parts have names of their own
    "trust.",
    "coverage.",
    "contact_accuracy.",
    "contact_batches.",
    "trajectories.",
    "random_actions.",
    "environments.",
    "kalman_bucy_beyond.",
    "kalman_bucy_real.",
    "kalman_bucy_settings.",
)
SWEEPS = {
    "sensitivity.density": "estimates against the density of the process noise (minutes)",
    "sensitivity.step": "estimates against the time step (minutes)",
    "sensitivity.compliance": "estimates against the compliance of the joints (minutes)",
}
LONG = {
    "start": "whole processes from the shell, with programs that were kept and without (minutes)",
    "interrupt": "Ctrl-C at 20 moments of `identify` and of `simulate`, first and later runs (minutes)",
    "dependencies": "libraries beside our own code: loops, box problems, linear systems, a baseline (minutes)",
    "contact_speed": "bodies that touch beside MuJoCo: time of a step, at rest and settling (minutes)",
    "discs": "a step of a planar joint whose friction is a disc, beside rows with bounds",
    "contact_accuracy": "bodies that touch beside what is known: slopes, rolling, impacts (minutes; also .CASE)",
    "contact_batches": "batches of bodies that touch beside MJX, compiling beside the same without contacts (minutes)",
    **{
        f"random_contacts.{name}": "75 random motions with contacts: early ends, overlaps, gains of energy (minutes)"
        for name in ("few", "slots", "arm", "loop", "cylinders", "rough")
    },
    "starts.half": "the demo from 20 starts, each parameter 50 % off (minutes)",
    "starts.three": "the same, each parameter a factor of 3 off (minutes)",
    "learned_friction.batch": "the same network most likely for constant friction (minutes)",
    "learned_friction.seeds": "the filters on sixty further seeds (minutes)",
    "kalman_bucy.table": "forty double pendulums of a published table: batch method, filters, shooting (half an hour)",
    "kalman_bucy.networks": "the same by networks of time, all forty in one batch (ten minutes)",
    "kalman_bucy.time": "every method on 500 samples of one of them, cold and compiled (minutes)",
    "kalman_bucy_settings": "the networks trained in other ways (hours on a processor; also .NAME)",
    "kalman_bucy_more.rates": "errors against the sampling frequency, all but networks, with a chart (half an hour)",
    "kalman_bucy_more.start_rates": "the same by the batch method, the best of 7 starts, in the same chart (minutes)",
    "kalman_bucy_more.network_rates": "the same by networks, in the same chart (minutes)",
    "kalman_bucy_more.states": "states of one of them with bands, with a chart",
    "kalman_bucy_beyond": "one arm's angle alone, irregular stamps with a gap, eight unknowns, a spring (half an hour)",
    "kalman_bucy_real": "two real double pendulums by every method (half an hour; reads SPOOKAX_DATA)",
    "trust": "public recordings under the defaults, beside other rules of process noise (minutes; reads SPOOKAX_DATA)",
    "laws.between": "laws of friction of a swinging arm, by windows held back (minutes; reads SPOOKAX_DATA)",
    "laws.end": "the same, the end of the recording held back (minutes; reads SPOOKAX_DATA)",
    "laws.emps": "the same of a positioning axis (minutes; reads SPOOKAX_DATA)",
    "furuta": "real Furuta pendulum: each run predicted from the others (minutes; reads SPOOKAX_DATA)",
    "faulty_recordings": "recordings with a fault each: whether it is the first suspicion (minutes)",
    "contacts.cube": "a tossed cube: friction, restitution, height of the board; beside MuJoCo (minutes; SPOOKAX_DATA)",
    "cube_study": "the same cube by `spookax identify`, tosses held back beside MuJoCo (minutes; SPOOKAX_DATA)",
    "cube_inertia": "the cube's moments of inertia over their mean, and its axes, from flights (minutes; SPOOKAX_DATA)",
    "trajectories": "swing-ups by iterative LQR beside single shooting by scipy (minutes; also trajectories.NAME)",
    "environments": "steps per second of batches beside MuJoCo, MJX and Brax, gradients of episodes, their memory"
    " (minutes; also environments.PART and environments.PART.TASK)",
    "random_actions": "a thousand episodes of every task under random actions (minutes; also random_actions.TASK)",
    "learning": "a Furuta pendulum swung up by envs.learn and by PPO of rejax, a chart in docs/figures (minutes)",
    "transfer": "policies trained on some recordings of a real rig, tried on others (an hour; reads SPOOKAX_DATA)",
    "coverage": "how often 90 % intervals hold the truth, over synthetic records (an hour; also coverage.CASE)",
    "coverage_demo": "the same on the demo's machine under torque noise (minutes)",
    "servo_friction": "friction of a real servo by formulas and by a network (minutes; reads SPOOKAX_DATA)",
    "hysteresis.bank": "elasto-slide elements: a published bank and its variants, least squares (minutes)",
    "hysteresis.batch": "the same experiments by the batch method (minutes)",
    "latent.force": "an unknown friction force, scores and times beside the source's record (reads SPOOKAX_DATA)",
    "latent.table": "the source's tables by the chain of the shell (reads SPOOKAX_DATA; minutes)",
    "latent.coverage": "bands of the force on fifty drawn records (a quarter of an hour)",
    "latent.frame": "a real frame with friction, three loads (reads SPOOKAX_DATA; minutes)",
    "latent.sweeps": "the force against noise, length and rate, curves in docs/figures (reads SPOOKAX_DATA; minutes)",
    "latent.two": "two masses with two contacts, simulated (minutes)",
    "latent.ageing": "friction with a memory, by the chain of the shell (minutes)",
    "latent.methods": "one friction by a latent force, formulas and a network (reads SPOOKAX_DATA; ten minutes)",
    "latent.vbmc": "its hyperparameters by Laplace and by pyvbmc (reads SPOOKAX_DATA; minutes)",
    "latent.sampler": "the same by Laplace and by the No-U-Turn sampler (reads SPOOKAX_DATA; minutes)",
    "latent.base": "a base that moves: smoothed beforehand, and among the states (minutes)",
    "latent.length": "the same, times against the number of samples (reads SPOOKAX_DATA)",
    "hysteresis.bouc_wen": "elasto-slide elements on a Bouc-Wen oscillator's record (reads SPOOKAX_DATA)",
}
ALL = DEFAULT | PARTS | SWEEPS | LONG


def main() -> int:
    """Run the benchmarks that the command line names; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Times and memory of the package.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks; all but those of minutes when left out")
    parser.add_argument("--list", action="store_true", help="list the benchmarks and stop")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{name:24} {text}" for name, text in ALL.items()))
        return 0
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the shell does (`spookax.__main__`)
    names = [n for name in arguments.names or DEFAULT for n in (SWEEPS if name == "sensitivity" else [name])]
    unknown = [name for name in names if name not in ALL and not name.startswith(FAMILIES)]
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; known: {', '.join([*ALL, 'sensitivity'])}")
    if len(names) == 1:
        _run(names[0])
        return 0
    statuses = [subprocess.run([sys.executable, "-m", "benchmarks", name], check=False).returncode for name in names]
    return max(abs(status) for status in statuses)


def _run(name: str) -> None:
    import jax  # not in the process that only starts others

    from .measure import OUT, peak_memory, table

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    os.environ["SPOOKAX_CACHE"] = "off"  # compile times are of compiling
    module, _, part = name.partition(".")
    began = time.perf_counter()
    rows = importlib.import_module(f"benchmarks.{module}").run(*[part] if part else [])
    seconds, memory = time.perf_counter() - began, peak_memory()
    print(f"\n{name}\n{table(rows)}\n{seconds:.0f} s, peak memory {memory:.0f} MiB", flush=True)
    packages = ("spookax", "jax", "jaxlib", "numpy", "equinox")
    content = {
        "benchmark": name,
        "versions": {"python": platform.python_version()} | {p: importlib.metadata.version(p) for p in packages},
        "device": jax.devices()[0].platform,
        "seconds": seconds,
        "peak_memory_mib": memory,
        "rows": rows,
    }
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
