// The scenes of the article: what each draws, and how a person moves it.

const STANDARD = prior("gaussian", { loc: 0, scale: 1 });
const MOST = 4; // nats: one scale for every chart of divergences, so that they can be compared
const NAMES = ["KL", "JSG", "JSA"];
const still = window.matchMedia("(prefers-reduced-motion: reduce)");

const grid = (low, high, count) =>
  Array.from({ length: count + 1 }, (_, k) => low + (k / count) * (high - low));
const inner = () => Math.min(Math.max(state.alpha, 1e-3), 1 - 1e-3); // where JS-A has a bound
const at = (loc, scale, alpha) => divergences({ loc, scale }, STANDARD, alpha);

// ---- numbers in the text that can be dragged

function makeNumber(span) {
  const name = span.dataset.number;
  const setting = SETTINGS[name];
  span.tabIndex = 0;
  span.setAttribute("role", "slider");
  span.setAttribute("aria-label", setting.label);
  span.setAttribute("aria-valuemin", setting.low);
  span.setAttribute("aria-valuemax", setting.high);
  const move = (places) => {
    const next = Math.min(Math.max(toSlider(setting, state[name]) + places, 0), STEPS);
    change({ [name]: fromSlider(setting, next) });
  };
  let from = null;
  span.addEventListener("pointerdown", (event) => {
    from = { x: event.clientX, place: toSlider(setting, state[name]) };
    span.setPointerCapture(event.pointerId);
  });
  span.addEventListener("pointermove", (event) => {
    if (from) move(from.place + Math.round((event.clientX - from.x) * 2) - toSlider(setting, state[name]));
  });
  for (const end of ["pointerup", "pointercancel"]) span.addEventListener(end, () => (from = null));
  span.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -5, ArrowDown: -5, ArrowRight: 5, ArrowUp: 5, PageDown: -50, PageUp: 50 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    move(steps[event.key]);
  });
}

function showNumbers() {
  for (const span of document.querySelectorAll("[data-number]")) {
    const value = state[span.dataset.number];
    span.textContent = tickLabel(Number(value.toPrecision(3)));
    span.setAttribute("aria-valuenow", value);
  }
  const values = at(state.loc, state.scale, state.alpha);
  const told = { ...values, bound: bound(state.alpha), share: (1 - state.alpha) ** 3 + state.alpha ** 3 };
  for (const span of document.querySelectorAll("[data-value]")) {
    span.textContent = nats(told[span.dataset.value]);
  }
}

// ---- what every chart of divergences shares

// A value that leaves the chart is marked at its edge, with the number.
function mark(chart, x, y, name) {
  const top = chart.range.y[1];
  chart.dot(x, Math.min(y, top), `dot ${name}`);
  if (y > top) chart.label(x, top, `${TITLES[name]} ${nats(y)} ↑`, name);
}

function limitLine(chart, alpha) {
  const limit = bound(alpha);
  if (limit < chart.range.y[1]) chart.horizontal(limit, "limit");
}

// ---- two bells

function drawBells() {
  const chart = new Chart(byId("bells"), {
    x: [-7, 7], y: [0, 1.05], height: 230, xLabel: "weight w", yLabel: "density",
  });
  const xs = placesToDraw([-7, 7], { loc: state.loc, scale: state.scale }, STANDARD);
  const f = curves({ loc: state.loc, scale: state.scale }, STANDARD, inner());
  chart.area(xs, xs.map(f.p), { class: "shade p" });
  chart.line(xs, xs.map(f.p), "p");
  chart.line(xs, xs.map(f.q), "q");
  const peak = Math.min(f.q(state.loc), 1);
  const shoulder = state.loc + state.scale;
  chart.dot(state.loc, peak, "handle loc");
  chart.dot(shoulder, Math.min(f.q(shoulder), 1), "handle scale");
  bells = chart;
}

let bells = null;

function dragBells(svg) {
  let dragged = null;
  const where = (event) => {
    const box = svg.getBoundingClientRect();
    return bells.valueAt(((event.clientX - box.left) * bells.width) / box.width);
  };
  svg.addEventListener("pointerdown", (event) => {
    const w = where(event);
    const near = Math.abs(w - state.loc - state.scale) < Math.abs(w - state.loc);
    dragged = { name: near ? "scale" : "loc", off: w - state.loc };
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (!dragged) return;
    const w = where(event);
    const held = (value, low, high) => Number(Math.min(Math.max(value, low), high).toFixed(2));
    if (dragged.name === "loc") change({ loc: held(w - dragged.off, -6, 6) });
    else change({ scale: held(Math.abs(w - state.loc), 0.05, 5) });
  });
  for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, () => (dragged = null));
}

function drawBars() {
  const values = at(state.loc, state.scale, inner());
  const limit = bound(inner());
  for (const name of NAMES) {
    const share = Math.min(values[name] / MOST, 1);
    byId(`bar-${name}`).style.width = `${100 * share}%`;
    byId(`bar-${name}-value`).textContent = `${nats(values[name])}${values[name] > MOST ? " →" : ""}`;
  }
  byId("bar-limit").style.left = `${100 * Math.min(limit / MOST, 1)}%`;
}

// ---- the floor under the mixture

function drawFloor() {
  const alpha = inner();
  const q = { loc: state.loc, scale: state.scale };
  const chart = new Chart(byId("floor"), {
    x: [-7, 7], y: [0, 0.85], height: 230, xLabel: "weight w", yLabel: "density",
  });
  const xs = placesToDraw([-7, 7], q, STANDARD);
  const f = curves(q, STANDARD, alpha);
  chart.area(xs, xs.map((x) => alpha * f.q(x)), { class: "shade q" });
  chart.line(xs, xs.map((x) => alpha * f.q(x)), "q thin");
  chart.line(xs, xs.map(f.p), "p");
  chart.line(xs, xs.map(f.A), "A");
  const ratio = new Chart(byId("ratio"), {
    x: [-7, 7], y: [-2, 8], height: 200, xLabel: "weight w", yLabel: "log ratio (nats)",
  });
  const logs = (over) => xs.map((x) => Math.log(f.q(x)) - Math.log(f[over](x)));
  ratio.horizontal(0, "axis");
  ratio.horizontal(-Math.log(alpha), "limit");
  ratio.line(xs, logs("p"), "KL");
  ratio.line(xs, logs("A"), "JSA");
}

// ---- the pull

function drawPull() {
  const alpha = inner();
  const chart = new Chart(byId("pull"), {
    x: [0, 7], y: [0, 3], height: 260, xLabel: "distance of q from the prior, in its scales",
    yLabel: "pull (nats per unit)",
  });
  const xs = grid(0, 7, 140);
  chart.vertical(Math.abs(state.loc), "here");
  for (const name of NAMES) {
    chart.line(xs, xs.map((x) => PULLS[name](x, state.scale, alpha).loc), name);
    const here = PULLS[name](Math.abs(state.loc), state.scale, alpha).loc;
    mark(chart, Math.abs(state.loc), here, name);
  }
  const peak = xs.reduce((best, x) =>
    PULLS.JSA(x, state.scale, alpha).loc > PULLS.JSA(best, state.scale, alpha).loc ? x : best);
  byId("pull-note").textContent =
    `JS-A pulls hardest ${tickLabel(Number(peak.toFixed(2)))} prior scales out, with ` +
    `${PULLS.JSA(peak, state.scale, alpha).loc.toFixed(2)} nats per unit.`;
}

// ---- sweeps of alpha and of the scale

function drawSweeps() {
  const alphas = grid(0.001, 0.999, 110);
  const over = new Chart(byId("over-alpha"), {
    x: [0, 1], y: [0, MOST], height: 240, xLabel: "α", yLabel: "divergence (nats)",
  });
  const found = alphas.map((alpha) => at(state.loc, state.scale, alpha));
  over.line(alphas, alphas.map(bound), "limit");
  over.vertical(inner(), "here");
  const here = at(state.loc, state.scale, inner());
  for (const name of NAMES) {
    over.line(alphas, found.map((values) => values[name]), name);
    mark(over, inner(), here[name], name);
  }
  const logs = grid(-1.5, 1, 100);
  const wide = new Chart(byId("over-scale"), {
    x: [-1.5, 1], y: [0, MOST], height: 240, xLabel: "log₁₀ of the scale σ of q",
    yLabel: "divergence (nats)",
  });
  const swept = logs.map((log) => at(state.loc, 10 ** log, inner()));
  limitLine(wide, inner());
  wide.vertical(Math.log10(state.scale), "here");
  for (const name of NAMES) {
    wide.line(logs, swept.map((values) => values[name]), name);
    mark(wide, Math.log10(state.scale), here[name], name);
  }
}

// ---- the quarter

function drawQuarter() {
  const alpha = inner();
  const logs = grid(-2, 1, 90);
  const chart = new Chart(byId("quarter"), {
    x: [-2, 1], y: [0, 1.2], height: 240, xLabel: "log₁₀ of the distance of q from p (σ = 1)",
    yLabel: "over KL",
  });
  chart.horizontal((1 - alpha) ** 3 + alpha ** 3, "limit");
  for (const name of ["JSG", "JSA"]) {
    chart.line(logs, logs.map((log) => {
      const values = at(10 ** log, 1, alpha);
      return values[name] / values.KL;
    }), name);
  }
}

// ---- three networks

const live = { points: firstPoints(), networks: [], running: false };
const LINE = grid(-3.4, 3.4, 85);

function newNetworks() {
  live.networks = NAMES.map((name) => new Network(name));
  drawNetworks();
}

function trainFor(milliseconds) {
  const end = performance.now() + milliseconds;
  while (performance.now() < end) {
    for (const network of live.networks) network.step(live.points, inner(), state.strength);
  }
}

function train() {
  if (!live.running) return;
  if (!document.hidden && inView(byId("networks"))) {
    trainFor(24);
    drawNetworks();
  }
  setTimeout(train, 16);
}

function inView(part) {
  const box = part.getBoundingClientRect();
  return box.bottom > 0 && box.top < window.innerHeight;
}

function drawNetworks() {
  for (const network of live.networks) {
    const chart = new Chart(byId(`net-${network.name}`), {
      x: [-3.4, 3.4], y: [-3, 3], height: 230, xLabel: "x", yLabel: "y",
    });
    const band = network.band(LINE);
    const ends = (side) => band.map(([mean, scale]) => mean + side * 2 * scale);
    chart.between(LINE, ends(-1), ends(1), { class: `shade ${network.name}` });
    chart.line(LINE, band.map(([mean]) => mean), network.name);
    for (const [x, y] of live.points) chart.dot(x, y, "datum", 2.6);
    live[network.name] = chart;
  }
  byId("net-steps").textContent = `${live.networks[0].steps} steps`;
}

function setRunning(running) {
  live.running = running;
  byId("net-run").textContent = running ? "Pause" : "Train";
  if (running) train();
}

function addPoint(x, y) {
  live.points.push([x, y]);
  drawNetworks();
}

function startNetworks() {
  byId("net-run").addEventListener("click", () => {
    if (!still.matches) return setRunning(!live.running);
    trainFor(600); // without motion: a stretch of training, then one picture
    return drawNetworks();
  });
  byId("net-reset").addEventListener("click", () => {
    live.points = firstPoints();
    newNetworks();
  });
  const random = generator(5);
  byId("net-outlier").addEventListener("click", () =>
    addPoint(-2.2 + 4.4 * random.uniform(), random.uniform() < 0.5 ? -2.4 : 2.4));
  byId("net-noise").addEventListener("click", () => {
    live.points = live.points.map(([x, y]) => [x, y + 0.3 * random.normal()]);
    drawNetworks();
  });
  for (const name of NAMES) {
    byId(`net-${name}`).addEventListener("click", (event) => {
      const svg = byId(`net-${name}`);
      const box = svg.getBoundingClientRect();
      const chart = live[name];
      const place = [event.clientX - box.left, event.clientY - box.top].map(
        (pixel) => (pixel * chart.width) / box.width);
      addPoint(chart.valueAt(place[0]), chart.heightAt(place[1]));
    });
  }
  newNetworks();
}

function drawScenes() {
  showNumbers();
  drawBells();
  drawBars();
  drawFloor();
  drawPull();
  drawSweeps();
  drawQuarter();
}
