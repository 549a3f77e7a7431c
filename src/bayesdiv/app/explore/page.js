// What a person moves, what is shown for it, and the address that keeps it.

const SETTINGS = {
  loc: { group: "posterior", label: "mean μ of q", low: -20, high: 20, start: 1 },
  scale: { group: "posterior", label: "scale σ of q", low: 1e-3, high: 100, start: 1, log: true },
  prior_loc: { group: "prior", label: "mean of p", low: -20, high: 20, start: 0 },
  prior_scale: { group: "prior", label: "scale of p", low: 0.01, high: 100, start: 1, log: true },
  df: { group: "prior", label: "degrees of freedom", low: 1, high: 100, start: 3, log: true },
  low: { group: "prior", label: "lower end of p", low: -20, high: 20, start: -5 },
  high: { group: "prior", label: "upper end of p", low: -20, high: 20, start: 5 },
  alpha: { group: "divergence", label: "alpha α", low: 0, high: 1, start: 0.5 },
  strength: {
    group: "divergence", label: "strength λ", low: 1e-3, high: 1e5, start: 1, log: true,
  },
};
const CHOICES = {
  prior: ["gaussian", "laplace", "uniform", "student"],
  view: ["both", "q", "p"],
  axis: ["linear", "logarithmic"],
};
const NEEDS = {
  gaussian: ["prior_loc", "prior_scale"],
  laplace: ["prior_loc", "prior_scale"],
  uniform: ["low", "high"],
  student: ["df", "prior_loc", "prior_scale"],
};
const START = {
  ...Object.fromEntries(Object.entries(SETTINGS).map(([name, { start }]) => [name, start])),
  prior: "gaussian", view: "both", axis: "linear",
};
const PRESETS = {
  gaussians: {},
  paper: { loc: 0, scale: 2, prior: "uniform" },
  narrow: { loc: 0.1, scale: 0.001, prior_scale: 0.1, alpha: 0.1, view: "p", axis: "logarithmic" },
  far: { loc: 8 },
  heavy: { loc: 3, scale: 0.5, prior: "student", df: 3 },
  sparse: { loc: 0.5, scale: 0.3, prior: "laplace", prior_scale: 0.2 },
};
const TITLES = { KL: "KL", JSG: "JS-G", JSA: "JS-A" };
const STEPS = 1000; // places of a slider

const byId = (id) => document.getElementById(id);
let state = { ...START };
let sweep = { key: "", points: [] };

// ---- values that make sense, and sentences for those that do not

function complaint(name, text) {
  if (name in CHOICES) {
    const known = CHOICES[name];
    return known.includes(text) ? "" : `${name} must be one of ${known.join(", ")}, got ${text}`;
  }
  const { low, high } = SETTINGS[name];
  const value = text.trim() === "" ? NaN : Number(text);
  const fits = value >= low && value <= high;
  return fits ? "" : `${name} must lie in [${low}, ${high}], got ${text.trim() || "nothing"}`;
}

function endsComplaint({ prior: family, low, high }) {
  const wrong = family === "uniform" && !(low < high);
  return wrong ? `low must be below high, got ${low} and ${high}` : "";
}

const parsed = (name, text) => (name in CHOICES ? text : Number(text));

function tell(problem) {
  byId("problem").textContent = problem;
  byId("problem").hidden = !problem;
}

// ---- sliders

function toSlider({ low, high, log }, value) {
  const share = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.round(share * STEPS);
}

function fromSlider({ low, high, log }, place) {
  const share = place / STEPS;
  const value = log ? low * (high / low) ** share : low + share * (high - low);
  return log ? Number(value.toPrecision(3)) : Number(value.toFixed(3));
}

function makeControl(name, setting) {
  const control = document.createElement("div");
  control.className = "control";
  control.dataset.setting = name;
  const { label, low, high } = setting;
  control.innerHTML = `
    <label for="${name}">${label}</label>
    <input type="range" id="${name}" min="0" max="${STEPS}" step="1">
    <input type="number" id="${name}-number" min="${low}" max="${high}" step="any"
      aria-label="${label}, as a number" aria-describedby="problem" inputmode="decimal">`;
  byId(setting.group === "prior" ? "prior-parameters" : setting.group).append(control);
  byId(name).addEventListener("input", (event) => {
    change({ [name]: fromSlider(setting, Number(event.target.value)) });
  });
  byId(`${name}-number`).addEventListener("input", (event) => typed(name, event.target));
  byId(`${name}-number`).addEventListener("change", (event) => {
    if (event.target.value === "") showControls(null); // left empty: the last number comes back
  });
}

// A number is shown as it is typed; the sliders and the drawings follow if it makes sense.
function typed(name, input) {
  if (input.value === "") return; // begun, such as a lone minus
  const problem = complaint(name, input.value);
  input.setAttribute("aria-invalid", String(Boolean(problem)));
  if (problem) tell(problem);
  else change({ [name]: Number(input.value) }, input);
}

function showControls(typing) {
  for (const [name, setting] of Object.entries(SETTINGS)) {
    const [slider, number] = [byId(name), byId(`${name}-number`)];
    slider.value = toSlider(setting, state[name]);
    slider.setAttribute("aria-valuetext", String(state[name]));
    if (number !== typing) number.value = state[name];
    number.setAttribute("aria-invalid", "false");
    const shown = setting.group !== "prior" || NEEDS[state.prior].includes(name);
    slider.parentElement.hidden = !shown;
  }
  for (const name of Object.keys(CHOICES)) byId(name).value = state[name];
}

// ---- a change and what follows from it

function change(part, typing = null) {
  const next = { ...state, ...part };
  const problem = endsComplaint(next);
  tell(problem);
  if (problem) {
    if (!typing) showControls(null);
    return;
  }
  state = next;
  showControls(typing);
  showValues();
  schedule("draw", () => requestAnimationFrame(draw), 0);
  schedule("keep", keep, 300);
  schedule("announce", announce, 700);
}

const timers = {};

function schedule(name, action, wait) {
  clearTimeout(timers[name]);
  timers[name] = setTimeout(action, wait);
}

function pair() {
  const q = { loc: state.loc, scale: state.scale };
  const { prior_loc: loc, prior_scale: scale, df, low, high } = state;
  return { q, p: prior(state.prior, { loc, scale, df, low, high }) };
}

// ---- values

function nats(value) {
  if (value === Infinity) return "∞";
  if (value < 1e-12) return "0.0000";
  if (value < 1e-3 || value >= 1e6) return withPower(value.toExponential(3));
  return value.toFixed(value < 100 ? 4 : 2);
}

const spoken = (value) => (value === Infinity ? "infinite" : `${nats(value)} nats`);

function show(id, value) {
  byId(id).value = String(value);
  byId(id).textContent = nats(value);
}

function showValues() {
  const { q, p } = pair();
  const values = divergences(q, p, state.alpha);
  const limit = bound(state.alpha);
  for (const [name, value] of Object.entries({ ...values, bound: limit })) {
    show(`${name}-nats`, value);
    show(`${name}-strong`, state.strength * value);
  }
  const share = Math.round((100 * values.JSA) / limit);
  byId("share").textContent =
    limit === Infinity
      ? `At α = ${state.alpha} JS-G and JS-A are ${state.alpha ? "KL(p ‖ q)" : "KL(q ‖ p)"}, and nothing is bounded.`
      : `JS-A is at ${share} % of its bound.`;
  return values;
}

function announce() {
  const [KL, JSG, JSA, limit] = ["KL", "JSG", "JSA", "bound"].map((n) =>
    spoken(Number(byId(`${n}-nats`).value)),
  );
  byId("spoken").textContent = `KL ${KL}, JS-G ${JSG}, JS-A ${JSA}; its bound is ${limit}.`;
}

// ---- drawings

function stretch(q, p) {
  const of = { q: [q.loc - 5 * q.scale, q.loc + 5 * q.scale], p: [p.loc - p.reach, p.loc + p.reach] };
  if (state.view !== "both") return of[state.view];
  return [Math.min(of.q[0], of.p[0]), Math.max(of.q[1], of.p[1])];
}

// Places to draw at: even ones, and others on the scales of q and p, so that no peak is cut off.
function placesToDraw([low, high], q, p) {
  const places = Array.from({ length: 401 }, (_, k) => low + (k / 400) * (high - low));
  for (const { loc, scale } of [q, p]) {
    for (let k = -60; k <= 60; k += 1) places.push(loc + (k / 10) * scale);
  }
  const tiny = (high - low) * 1e-9;
  for (const edge of p.support.filter(Number.isFinite)) places.push(edge - tiny, edge, edge + tiny);
  return places.filter((x) => x >= low && x <= high).sort((a, b) => a - b);
}

function draw() {
  const { q, p } = pair();
  const x = stretch(q, p);
  const xs = placesToDraw(x, q, p);
  const f = curves(q, p, state.alpha);
  const lines = Object.fromEntries(Object.entries(f).map(([name, at]) => [name, xs.map(at)]));
  drawDensities(x, xs, lines);
  drawIntegrands(x, xs, lines, p);
  drawSweep();
  drawScenes();
}

function drawDensities(x, xs, lines) {
  const fitted = state.view === "both" ? ["q", "p"] : [state.view];
  const top = Math.max(...fitted.flatMap((name) => lines[name]));
  const highest = Object.fromEntries(["q", "p", "A", "G"].map((n) => [n, Math.max(...lines[n])]));
  const y = [0, 1.08 * Math.max(top, Math.min(highest.G, 1.4 * top))];
  const chart = new Chart(byId("densities"), {
    x, y, height: 270, xLabel: "weight w", yLabel: "density",
  });
  chart.area(xs, lines.p, { class: "shade p" });
  for (const name of ["p", "G", "A", "q"]) chart.line(xs, lines[name], name);
  const cut = Object.entries(highest).filter(([, value]) => value > y[1]);
  const told = cut.map(([name, value]) => `${name} to ${tickLabel(Number(value.toPrecision(3)))}`);
  byId("densities-note").textContent = cut.length ? `Above this axis: ${told.join(", ")}.` : "";
}

// One scale for all three: an area that looks larger is larger.
function drawIntegrands(x, xs, lines, p) {
  const names = Object.keys(TITLES);
  const finite = names.flatMap((name) => lines[name]).filter(Number.isFinite);
  const [least, most] = [Math.min(0, ...finite), Math.max(0, ...finite)];
  const margin = 0.08 * (most - least || 1);
  const y = [least - (least < 0 ? margin : 0), most + margin];
  for (const name of names) drawIntegrand(name, { x, y }, xs, lines[name], p);
}

function drawIntegrand(name, { x, y }, xs, ys, p) {
  const chart = new Chart(byId(`${name}-area`), {
    x, y, height: 210, xLabel: "weight w", yLabel: "nats per unit of w",
  });
  const hatch = chart.hatching(name);
  const positive = (y) => (Number.isFinite(y) ? Math.max(y, 0) : y);
  const negative = (y) => (Number.isFinite(y) ? Math.min(y, 0) : y);
  chart.area(xs, ys.map(positive), { class: `shade ${name}` });
  chart.area(xs, ys.map(negative), { fill: hatch });
  chart.line(xs, ys, name);
  chart.horizontal(0, "axis");
  const value = Number(byId(`${name}-nats`).value);
  const outside = ys.includes(Infinity);
  if (outside) {
    chart.band(x[0], p.support[0], { class: `endless ${name}` });
    chart.band(p.support[1], x[1], { class: `endless ${name}` });
  }
  byId(`${name}-note`).textContent = note(value, outside);
  byId(`${name}-area`).setAttribute("aria-label", `Integrand of ${TITLES[name]}: ${spoken(value)}`);
}

function note(value, outside) {
  if (value < Infinity) return `Area: ${nats(value)} nats.`;
  if (outside) return "Infinite in the shaded bands, where q has mass and p has none.";
  return unbounded(pair().p)
    ? "Infinite: the tails of p are too heavy for q."
    : "Infinite: q has mass where p has none.";
}

// The divergences as the mean of q moves: computed anew only if something else has moved.
function sweepPoints() {
  const { q, p } = pair();
  const key = JSON.stringify([q.scale, state.prior, p.loc, p.scale, state.df, state.alpha]);
  if (sweep.key === key) return sweep.points;
  const locs = Array.from({ length: 81 }, (_, k) => k / 4 - 10);
  const dips = p.support.filter(Number.isFinite).map((edge) => [edge, q.scale]);
  dips.push([p.loc, Math.hypot(p.scale, q.scale)]);
  for (const [loc, scale] of dips) {
    for (let k = -20; k <= 20; k += 1) locs.push(loc + (k / 4) * scale);
  }
  const inside = locs.filter((loc) => loc >= -10 && loc <= 10).sort((a, b) => a - b);
  const points = inside.map((loc) => ({ loc, ...divergences({ loc, scale: q.scale }, p, state.alpha) }));
  sweep = { key, points };
  return points;
}

function drawSweep() {
  const points = sweepPoints();
  const names = Object.keys(TITLES);
  const finite = points.flatMap((point) => names.map((n) => point[n])).filter(Number.isFinite);
  const limit = bound(state.alpha);
  const logarithmic = state.axis === "logarithmic";
  const y = logarithmic ? decadesOf(finite, limit) : [0, linearTop(finite)];
  const chart = new Chart(byId("sweep"), {
    x: [-10, 10], y, height: 260, xLabel: "mean μ of q", yLabel: "divergence (nats)", logarithmic,
  });
  if (limit < Infinity) chart.horizontal(limit, "limit");
  chart.vertical(state.loc, "here");
  const locs = points.map(({ loc }) => loc);
  for (const name of names) {
    chart.line(locs, points.map((point) => point[name]), name);
    const here = Number(byId(`${name}-nats`).value);
    if (here < Infinity) mark(chart, state.loc, here, name);
  }
  byId("sweep-note").textContent = sweepNote(points, names, y[1]);
}

// One of a few fixed axes, whatever α is, so that the bound is seen to move.
function linearTop(finite) {
  const most = Math.max(...finite, 0);
  return [1, 4].find((top) => top >= most) ?? 4;
}

function decadesOf(finite, limit) {
  const positive = finite.filter((value) => value > 1e-6);
  const values = limit < Infinity ? [...positive, limit] : positive;
  const [least, most] = values.length ? [Math.min(...values), Math.max(...values)] : [0.1, 1];
  return [10 ** Math.floor(Math.log10(least)), 10 ** Math.ceil(Math.log10(1.01 * most))];
}

function sweepNote(points, names, top) {
  const some = (test) => names.filter((n) => points.every((point) => test(point[n])));
  const say = (which, what) =>
    which.length ? `${which.map((n) => TITLES[n]).join(" and ")}: ${what}. ` : "";
  const infinite = some((value) => value === Infinity);
  const above = some((value) => value > top && value < Infinity);
  return say(infinite, "infinite for every μ") +
    say(above, "above this axis for every μ; the logarithmic axis shows it");
}

// ---- the address

const isDefault = ([name, value]) => value === START[name];

function keep() {
  const changed = Object.entries(state).filter((entry) => !isDefault(entry));
  const hash = new URLSearchParams(changed).toString();
  if (location.hash.slice(1) !== hash) history.replaceState(null, "", `#${hash}`);
}

// What the address says; the first thing in it that makes no sense is told and left out.
function restore() {
  const found = { ...START };
  let problem = "";
  for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
    const known = Object.hasOwn(START, name);
    const wrong = known ? complaint(name, text) : `the page has no setting ${name}`;
    if (!wrong) found[name] = parsed(name, text);
    problem ||= wrong;
  }
  const wrong = endsComplaint(found);
  if (wrong) [found.low, found.high] = [START.low, START.high];
  change(found);
  tell(problem || wrong);
}
