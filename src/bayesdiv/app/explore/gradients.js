// How the divergences change with q, and with it the pull on one weight; p is N(0, 1).
// delta = (loc - prior loc) / prior scale, ratio = scale / prior scale.

// KL = ½(r² + δ² - 1) - log r.
function klPull(delta, ratio) {
  return { loc: delta, scale: ratio - 1 / ratio };
}

// JS-G = (1-α)² KL(q ‖ p) + α² KL(p ‖ q) + log Z, each part by its closed form.
function jsgPull(delta, ratio, alpha) {
  const other = 1 - alpha;
  const v = other * ratio ** 2 + alpha;
  const slope = 2 * other * ratio;
  const square = delta ** 2;
  const forward = klPull(delta, ratio);
  const backward = { loc: delta / ratio ** 2, scale: 1 / ratio - (1 + square) / ratio ** 3 };
  const scaleOfZ =
    other / ratio - slope / (2 * v) + (alpha * other * square * slope) / (2 * v * v);
  return {
    loc: other ** 2 * forward.loc + alpha ** 2 * backward.loc - (alpha * other * delta) / v,
    scale: other ** 2 * forward.scale + alpha ** 2 * backward.scale + scaleOfZ,
  };
}

// Nodes of a trapezoidal rule under N(0, 1); it converges exponentially for smooth integrands.
const BELL = Array.from({ length: 81 }, (_, k) => (k - 40) / 5).map((z) => [
  z, Math.exp(-0.5 * z * z) / (5 * Math.sqrt(2 * Math.PI)),
]);

// JS-A: ∂/∂θ = E_q[φ ∂ log q/∂θ] with φ = (1-α) log(q/A) - α ((1-α) q + α p)/A.
function jsaPull(delta, ratio, alpha) {
  const other = 1 - alpha;
  const logAlpha = Math.log(alpha);
  const logOther = Math.log1p(-alpha);
  let [loc, scale] = [0, 0];
  for (const [z, share] of BELL) {
    const x = delta + ratio * z;
    const logQ = -0.5 * z * z - Math.log(ratio);
    const logP = -0.5 * x * x;
    const logA = logAddExp(logAlpha + logQ, logOther + logP);
    const mixed = other * Math.exp(logQ - logA) + alpha * Math.exp(logP - logA);
    const value = share * (other * (logQ - logA) - alpha * mixed);
    loc += value * z;
    scale += value * (z * z - 1);
  }
  return { loc: loc / ratio, scale: scale / ratio };
}

const PULLS = { KL: klPull, JSG: jsgPull, JSA: jsaPull };
