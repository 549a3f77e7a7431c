// A Bayesian network with one input, one hidden layer and one output, trained in the page:
// a Gaussian per weight, one draw per step by reparametrisation, Adam.

const HIDDEN = 24;
const WEIGHTS = 3 * HIDDEN + 1; // input weights, hidden biases, output weights, output bias
const PRIOR_SCALES = Array.from({ length: WEIGHTS }, (_, k) => {
  if (k < 2 * HIDDEN) return 2.5; // so that the prior holds wiggly functions too
  return k < 3 * HIDDEN ? 1.5 / Math.sqrt(HIDDEN) : 0.5;
});
const NOISE = 0.15; // standard deviation of the likelihood

// A small generator of its own, so that the three networks see the same numbers.
function generator(seed) {
  let word = seed >>> 0;
  const uniform = () => {
    word = (word + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(word ^ (word >>> 15), word | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
  const normal = () => {
    const radius = Math.sqrt(-2 * Math.log(1 - uniform()));
    return radius * Math.cos(2 * Math.PI * uniform());
  };
  return { uniform, normal };
}

// Two clusters of noisy points on a wave, and a gap between them.
function firstPoints() {
  const random = generator(7);
  return Array.from({ length: 40 }, (_, k) => {
    const x = (k % 2 ? 0.6 : -2.4) + 1.8 * random.uniform();
    return [x, Math.sin(1.6 * x) * 0.8 + NOISE * random.normal()];
  });
}

function output(weights, x) {
  let y = weights[3 * HIDDEN];
  for (let h = 0; h < HIDDEN; h += 1) {
    y += weights[2 * HIDDEN + h] * Math.tanh(weights[h] * x + weights[HIDDEN + h]);
  }
  return y;
}

// Adds the gradient of ½ Σ ((f(x) - y)/noise)² by the weights.
function addGradients(weights, points, into) {
  for (const [x, y] of points) {
    const lead = (output(weights, x) - y) / NOISE ** 2;
    into[3 * HIDDEN] += lead;
    for (let h = 0; h < HIDDEN; h += 1) {
      const active = Math.tanh(weights[h] * x + weights[HIDDEN + h]);
      const back = lead * weights[2 * HIDDEN + h] * (1 - active * active);
      into[2 * HIDDEN + h] += lead * active;
      into[HIDDEN + h] += back;
      into[h] += back * x;
    }
  }
}

class Network {
  constructor(name, seed = 1) {
    this.name = name;
    this.random = generator(seed);
    const start = generator(seed + 1000);
    this.steps = 0;
    this.loc = PRIOR_SCALES.map((scale) => scale * start.normal() * 0.7);
    this.logScale = PRIOR_SCALES.map((scale) => Math.log(0.1 * scale));
    this.moments = Array.from({ length: 4 }, () => new Float64Array(WEIGHTS));
  }

  step(points, alpha, strength) {
    const noise = this.loc.map(() => this.random.normal());
    const scales = this.logScale.map(Math.exp);
    const weights = this.loc.map((m, k) => m + scales[k] * noise[k]);
    const data = new Float64Array(WEIGHTS);
    addGradients(weights, points, data);
    const pull = PULLS[this.name];
    this.steps += 1;
    const rate = 0.02 * Math.min(1, this.steps / 50);
    for (let k = 0; k < WEIGHTS; k += 1) {
      const prior = PRIOR_SCALES[k];
      const away = pull(this.loc[k] / prior, scales[k] / prior, alpha);
      const byLoc = data[k] + (strength * away.loc) / prior;
      const byLog = data[k] * noise[k] * scales[k] + (strength * away.scale * scales[k]) / prior;
      this.loc[k] -= rate * this.adam(k, 0, byLoc);
      this.logScale[k] -= rate * this.adam(k, 2, byLog);
      this.logScale[k] = Math.min(this.logScale[k], Math.log(4 * prior));
    }
  }

  adam(k, place, gradient) {
    const [first, second] = [this.moments[place], this.moments[place + 1]];
    first[k] += 0.1 * (gradient - first[k]);
    second[k] += 0.01 * (gradient * gradient - second[k]);
    const corrected = first[k] / (1 - 0.9 ** this.steps);
    return corrected / (Math.sqrt(second[k] / (1 - 0.99 ** this.steps)) + 1e-8);
  }

  // Mean and standard deviation of the function, without the noise of the data.
  band(xs, draws = 60) {
    const random = generator(99);
    const scales = this.logScale.map(Math.exp);
    const sums = xs.map(() => [0, 0]);
    for (let d = 0; d < draws; d += 1) {
      const weights = this.loc.map((m, k) => m + scales[k] * random.normal());
      xs.forEach((x, k) => {
        const y = output(weights, x);
        sums[k][0] += y / draws;
        sums[k][1] += (y * y) / draws;
      });
    }
    return sums.map(([mean, square]) => [mean, Math.sqrt(Math.max(0, square - mean * mean))]);
  }
}
