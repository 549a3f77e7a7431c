"""What the exact posterior says between two clusters: NUTS over the weights of the same network.

    python3 -m venv /tmp/hmc && /tmp/hmc/bin/pip install numpyro
    /tmp/hmc/bin/python benchmarks/tables/gap_hmc.py

Needs numpyro and numpy alone. The rows are those of gap.py, standardised; two hidden layers of 50
ReLU units; the prior of each weight is N(0, 1/fan-in), of each bias N(0, 1), that of the noise a
half-normal. Means and standard deviations of the function on a grid are written to gap_hmc.json.
"""

import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.infer import MCMC, NUTS

UNITS, CHAINS, WARM_UP, SAMPLES, DEPTH = 50, 2, 200, 200, 7
GRID = np.linspace(-5, 5, 201)


def clusters(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of both clusters and their targets, those of gap.py."""
    rng = np.random.default_rng(seed)
    x = np.r_[rng.uniform(-2, -1, 50), rng.uniform(1, 2, 50)]
    return x, np.sin(2 * x) + 0.1 * rng.normal(size=100)


def layer(name: str, x: jnp.ndarray, outputs: int) -> jnp.ndarray:
    """A linear layer whose weights are drawn from the prior."""
    inputs = x.shape[-1]
    shape = (inputs, outputs)
    weight = numpyro.sample(f"{name}_w", dist.Normal(0, inputs**-0.5).expand(shape).to_event(2))
    bias = numpyro.sample(f"{name}_b", dist.Normal(0, 1).expand((outputs,)).to_event(1))
    return x @ weight + bias


def model(x: jnp.ndarray, y: jnp.ndarray | None = None) -> None:
    """The network with one noise level."""
    hidden = jax.nn.relu(layer("one", x, UNITS))
    hidden = jax.nn.relu(layer("two", hidden, UNITS))
    f = numpyro.deterministic("f", layer("three", hidden, 1)[:, 0])
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    if y is not None:
        numpyro.sample("y", dist.Normal(f, noise), obs=y)


def main() -> None:
    """Sample, predict on the grid, write."""
    numpyro.set_host_device_count(1)
    x, y = clusters()
    loc, scale, y_loc, y_scale = x.mean(), x.std(), y.mean(), y.std()
    began = time.perf_counter()
    mcmc = MCMC(
        NUTS(model, max_tree_depth=DEPTH),
        num_warmup=WARM_UP,
        num_samples=SAMPLES,
        num_chains=CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    inputs = jnp.asarray((x - loc) / scale)[:, None]
    mcmc.run(jax.random.PRNGKey(0), inputs, jnp.asarray((y - y_loc) / y_scale))
    at = jnp.asarray((GRID - loc) / scale)[:, None]
    predictive = numpyro.infer.Predictive(model, mcmc.get_samples(), return_sites=["f"])
    drawn = np.asarray(predictive(jax.random.PRNGKey(1), at)["f"])
    # Functions, not weights, must mix: permuted units are the same function.
    chains = drawn.reshape(CHAINS, SAMPLES, -1)
    rhat = numpyro.diagnostics.gelman_rubin(chains)
    written = {
        "sampler": f"NUTS of numpyro {numpyro.__version__}, jax {jax.__version__}",
        "draws": f"{CHAINS} chains, {WARM_UP} to warm up, {SAMPLES} kept, depth at most {DEPTH}",
        "seconds": round(time.perf_counter() - began),
        "rhat": {"median": float(np.median(rhat)), "largest": float(rhat.max())},
        "x": GRID.round(3).tolist(),
        "mean": (y_loc + y_scale * drawn.mean(0)).round(4).tolist(),
        "std": (y_scale * drawn.std(0)).round(4).tolist(),
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(written) + "\n")
    print({k: v for k, v in written.items() if k not in ("x", "mean", "std")})


if __name__ == "__main__":
    main()
