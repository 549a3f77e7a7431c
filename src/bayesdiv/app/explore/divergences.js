// The densities, KL, JS-G and JS-A of one weight, in double precision and in nats.
// q is always Gaussian: { loc, scale }. A prior is what `prior` below returns.

const LOG_2PI = Math.log(2 * Math.PI);

const sum = (values) => values.reduce((total, value) => total + value, 0);
const softplus = (z) => (z > 0 ? z + Math.log1p(Math.exp(-z)) : Math.log1p(Math.exp(z)));
const logAddExp = (a, b) => {
  const top = Math.max(a, b);
  return top === -Infinity ? top : top + Math.log(Math.exp(a - top) + Math.exp(b - top));
};

// Stirling's series from 10 on, and the recurrences down to it.
function logGamma(x) {
  if (x < 10) return logGamma(x + 1) - Math.log(x);
  const y = 1 / (x * x);
  const series = (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y / 1680))) / x;
  return (x - 0.5) * Math.log(x) - x + LOG_2PI / 2 + series;
}

function digamma(x) {
  if (x < 10) return digamma(x + 1) - 1 / x;
  const y = 1 / (x * x);
  return Math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y / 240)));
}

function gaussianLogDensity(loc, scale) {
  const constant = -Math.log(scale) - LOG_2PI / 2;
  return (x) => constant - 0.5 * ((x - loc) / scale) ** 2;
}

// What each family tells: its log density, where it has features, its moments and its entropy.
const PRIORS = {
  gaussian: ({ loc, scale }) => ({
    logDensity: gaussianLogDensity(loc, scale),
    variance: scale ** 2,
    entropy: 0.5 * (LOG_2PI + 1) + Math.log(scale),
    reach: 4 * scale,
  }),
  laplace: ({ loc, scale }) => ({
    logDensity: (x) => -Math.abs(x - loc) / scale - Math.log(2 * scale),
    variance: 2 * scale ** 2,
    entropy: 1 + Math.log(2 * scale),
    reach: 6 * scale,
  }),
  student: ({ loc, scale, df }) => {
    const half = (df + 1) / 2;
    const normaliser = 0.5 * Math.log(df * Math.PI) + logGamma(df / 2) - logGamma(half);
    return {
      logDensity: (x) =>
        -half * Math.log1p(((x - loc) / scale) ** 2 / df) - normaliser - Math.log(scale),
      variance: df > 2 ? (scale ** 2 * df) / (df - 2) : Infinity,
      entropy: half * (digamma(half) - digamma(df / 2)) + normaliser + Math.log(scale),
      reach: 6 * scale,
    };
  },
  uniform: ({ low, high }) => ({
    logDensity: (x) => (x >= low && x <= high ? -Math.log(high - low) : -Infinity),
    loc: (low + high) / 2,
    scale: (high - low) / 2,
    support: [low, high],
    variance: (high - low) ** 2 / 12,
    entropy: Math.log(high - low),
    reach: 0.6 * (high - low),
  }),
};

function prior(family, parameters) {
  const { loc, scale } = parameters;
  return { family, loc, scale, support: [-Infinity, Infinity], ...PRIORS[family](parameters) };
}

// Nodes and shares of Gauss and Legendre on [-1, 1], by Newton's method.
function gaussLegendre(count) {
  return Array.from({ length: count }, (_, k) => {
    let x = Math.cos((Math.PI * (k + 0.75)) / (count + 0.5));
    let slope = 1;
    for (let step = 0; step < 20; step += 1) {
      let [before, here] = [1, x];
      for (let n = 2; n <= count; n += 1) {
        [before, here] = [here, ((2 * n - 1) * x * here - (n - 1) * before) / n];
      }
      slope = (count * (x * here - before)) / (x * x - 1);
      x -= here / slope;
    }
    return [x, 2 / ((1 - x * x) * slope * slope)];
  });
}

const NODES = gaussLegendre(12);

function panel(f, low, high) {
  const middle = (low + high) / 2;
  const half = (high - low) / 2;
  let total = 0;
  for (const [node, share] of NODES) total += share * f(middle + half * node);
  return half * total;
}

function refined(f, low, high, whole, tolerance, depth) {
  const middle = (low + high) / 2;
  const left = panel(f, low, middle);
  const right = panel(f, middle, high);
  if (Math.abs(left + right - whole) <= tolerance || depth === 40) return left + right;
  return (
    refined(f, low, middle, left, tolerance, depth + 1) +
    refined(f, middle, high, right, tolerance, depth + 1)
  );
}

// The integral of f over panels between the cuts, halved until halving changes nothing.
function integral(f, cuts, absolute, relative = 0) {
  const panels = cuts.slice(1).map((high, k) => [cuts[k], high, panel(f, cuts[k], high)]);
  const tolerance = Math.max(absolute, relative * sum(panels.map(([, , whole]) => whole)));
  return sum(panels.map(([low, high, whole]) => refined(f, low, high, whole, tolerance, 0)));
}

// Where to cut [low, high]: at multiples of every scale, doubling far out, so that no feature of
// either density falls between the nodes, whichever of the two is the narrower.
function cutsAround(places, low, high) {
  const cuts = [low, high];
  for (const [loc, scale] of places) {
    cuts.push(loc);
    let offset = 0;
    while (offset < 4 || offset * scale < high - low) {
      offset = offset < 4 ? offset + 1 : offset * 1.5;
      cuts.push(loc - offset * scale, loc + offset * scale);
    }
  }
  const inside = cuts.filter((cut) => cut >= low && cut <= high).sort((a, b) => a - b);
  return inside.filter((cut, k) => k === 0 || cut > inside[k - 1]);
}

// A Gaussian has no mass beyond 12 scales that a double could tell.
const FAR = 12;

// The mean of f under q; only the support of p is looked at, where there is one.
function meanUnder(q, p, f) {
  const logQ = gaussianLogDensity(q.loc, q.scale);
  return integralOverQ(q, p, (x) => {
    const here = logQ(x);
    return Math.exp(here) * f(x, here);
  });
}

function integralOverQ(q, p, f) {
  const low = Math.max(q.loc - FAR * q.scale, p.support[0]);
  const high = Math.min(q.loc + FAR * q.scale, p.support[1]);
  if (low >= high) return 0;
  const cuts = cutsAround([[q.loc, q.scale], [p.loc, p.scale]], low, high);
  return integral(f, cuts, 1e-10);
}

const unbounded = (p) => p.support[0] === -Infinity;

// KL(q ‖ p) = ∫ q log(q/p), infinite where q has mass and p has none.
function kl(q, p) {
  if (!unbounded(p)) return Infinity;
  if (p.family === "gaussian") {
    const ratio = q.scale / p.scale;
    return 0.5 * (ratio ** 2 + ((q.loc - p.loc) / p.scale) ** 2 - 1) - Math.log(ratio);
  }
  const entropy = 0.5 * (LOG_2PI + 1) + Math.log(q.scale);
  return -entropy - meanUnder(q, p, p.logDensity);
}

// KL(p ‖ q) = ∫ p log(p/q), infinite where p has no variance.
function reverseKl(q, p) {
  const square = (p.variance + (p.loc - q.loc) ** 2) / q.scale ** 2;
  return 0.5 * (LOG_2PI + square) + Math.log(q.scale) - p.entropy;
}

// log Z = log ∫ q^α p^(1-α), the normaliser of the geometric mean, 0 < α < 1.
function logNormaliser(q, p, alpha) {
  if (p.family === "gaussian") {
    const ratio = q.scale / p.scale;
    const v = (1 - alpha) * ratio ** 2 + alpha;
    const delta = (q.loc - p.loc) / p.scale;
    const far = (alpha * (1 - alpha) * delta ** 2) / (2 * v);
    return (1 - alpha) * Math.log(ratio) - 0.5 * Math.log(v) - far;
  }
  const logQ = gaussianLogDensity(q.loc, q.scale);
  const logMean = (x) => alpha * logQ(x) + (1 - alpha) * p.logDensity(x);
  const cuts = normaliserCuts(q, p, alpha);
  // Taken out before the exponential: far apart, all of the mean is below the double range.
  const top = Math.max(...cuts.map(logMean));
  return top + Math.log(integral((x) => Math.exp(logMean(x) - top), cuts, 0, 1e-9));
}

function normaliserCuts(q, p, alpha) {
  const width = q.scale / Math.sqrt(alpha); // the scale of q^α
  const low = Math.max(Math.min(q.loc, p.loc) - FAR * width, p.support[0]);
  const high = Math.min(Math.max(q.loc, p.loc) + FAR * width, p.support[1]);
  const places = [[q.loc, width], [p.loc, p.scale]];
  for (const edge of p.support.filter(Number.isFinite)) {
    // Beside an edge far from q, q^α falls off this fast.
    places.push([edge, Math.min(width ** 2 / Math.abs(edge - q.loc), high - low)]);
  }
  return cutsAround(places, low, high);
}

// JS-G = (1-α) KL(q ‖ G) + α KL(p ‖ G) = (1-α)² KL(q ‖ p) + α² KL(p ‖ q) + log Z.
function jsg(q, p, alpha) {
  if (alpha === 0) return kl(q, p);
  if (alpha === 1) return reverseKl(q, p);
  const value = (1 - alpha) ** 2 * kl(q, p) + alpha ** 2 * reverseKl(q, p);
  return value === Infinity ? value : Math.max(0, value + logNormaliser(q, p, alpha));
}

// What JS-A never exceeds: -(1-α) log α - α log(1-α); at α = 0 and 1 there is no such value.
function bound(alpha) {
  if (alpha === 0 || alpha === 1) return Infinity;
  return -(1 - alpha) * Math.log(alpha) - alpha * Math.log1p(-alpha);
}

// JS-A = bound - ∫ [(1-α) q softplus(-z) + α p softplus(z)], z = log q - log p + log(α/(1-α)).
function jsa(q, p, alpha) {
  if (alpha === 0) return kl(q, p);
  if (alpha === 1) return reverseKl(q, p);
  const logOdds = Math.log(alpha) - Math.log1p(-alpha);
  const logQ = gaussianLogDensity(q.loc, q.scale);
  const gap = integralOverQ(q, p, (x) => {
    const [atQ, atP] = [logQ(x), p.logDensity(x)];
    const z = atQ - atP + logOdds;
    const fall = (1 - alpha) * Math.exp(atQ) * softplus(-z);
    return fall + alpha * Math.exp(atP) * softplus(z);
  });
  return Math.min(Math.max(0, bound(alpha) - gap), bound(alpha));
}

function divergences(q, p, alpha) {
  return { KL: kl(q, p), JSG: jsg(q, p, alpha), JSA: jsa(q, p, alpha) };
}

// Functions of x: the two densities, the two means, and what is integrated for each divergence.
function curves(q, p, alpha) {
  const logQ = gaussianLogDensity(q.loc, q.scale);
  const logP = p.logDensity;
  const inner = alpha > 0 && alpha < 1;
  const logZ = inner ? logNormaliser(q, p, alpha) : 0;
  const logA = (x) => logAddExp(Math.log(alpha) + logQ(x), Math.log1p(-alpha) + logP(x));
  const logG = (x) => {
    if (!inner) return alpha === 1 ? logQ(x) : logP(x);
    return alpha * logQ(x) + (1 - alpha) * logP(x) - logZ;
  };
  const around = (logM) => (x) =>
    relative(1 - alpha, logQ(x), logM(x)) + relative(alpha, logP(x), logM(x));
  return {
    q: (x) => Math.exp(logQ(x)),
    p: (x) => Math.exp(logP(x)),
    A: (x) => Math.exp(logA(x)),
    G: (x) => Math.exp(logG(x)),
    KL: (x) => relative(1, logQ(x), logP(x)),
    JSG: around(logG),
    JSA: around(logA),
  };
}

// weight · one · log(one/other), with 0 log 0 = 0.
function relative(weight, logOne, logOther) {
  const one = weight * Math.exp(logOne);
  return one === 0 ? 0 : one * (logOne - logOther);
}
