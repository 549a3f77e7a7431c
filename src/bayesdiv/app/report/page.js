"use strict";
// The charts of a page from the specification beside each, the table behind each, sorting, hover.
(() => {
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 20 });
  const shown = (value) => {
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return String(value);
    if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e9)) return value.toPrecision(4);
    return whole.format(Number(value.toPrecision(5)));
  };
  const made = (tag, text = "", parent = null) => {
    const element = document.createElement(tag);
    element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };

  // Hover: the fields of a mark, as text.
  const hint = made("div", "", document.body);
  hint.className = "hover";
  hint.hidden = true;
  hint.setAttribute("aria-hidden", "true");
  const hover = (_, event, item, value) => {
    hint.replaceChildren();
    hint.hidden = !value;
    if (!value) return;
    for (const [name, field] of Object.entries(value)) {
      made("b", name, hint);
      made("span", shown(field), hint);
    }
    const room = document.documentElement;
    const left = Math.min(event.pageX + 14, window.scrollX + room.clientWidth - hint.offsetWidth - 8);
    hint.style.left = `${Math.max(8, left)}px`;
    hint.style.top = `${event.pageY + 18}px`;
  };

  // Sorting: a button in each head of a table that may be sorted.
  const key = (cell) => {
    const text = (cell?.dataset.value ?? cell?.textContent ?? "").trim();
    const number = Number.parseFloat(text.replace("−", "-").replace(/,(?=\d{3})/g, ""));
    return Number.isNaN(number) ? text : number;
  };
  const before = (a, b) =>
    typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
  const sortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, place) => {
      const button = made("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => (up ? 1 : -1) * before(key(a.cells[place]), key(b.cells[place])));
        table.tBodies[0].append(...rows);
      });
    });
  };

  // The table behind a chart, made when it is asked for.
  const tabled = (details, values, label) => {
    if (details.querySelector("table")) return;
    const names = [...new Set(values.flatMap(Object.keys))];
    const box = made("div", "", details);
    box.className = "scroll tall";
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", label);
    const table = made("table", "", box);
    table.setAttribute("aria-label", label);
    const head = made("tr", "", made("thead", "", table));
    names.forEach((name) => (made("th", name, head).scope = "col"));
    const body = made("tbody", "", table);
    for (const value of values) {
      const row = made("tr", "", body);
      names.forEach((name, k) => {
        const cell = made(k ? "td" : "th", shown(value[name]), row);
        if (!k) cell.scope = "row";
        if (typeof value[name] === "number") cell.dataset.value = value[name];
      });
    }
    sortable(table);
  };

  const font = getComputedStyle(document.body).fontFamily;
  const words = { labelColor: "var(--quiet)", titleColor: "var(--ink)", labelFontSize: 12 };
  const titles = { titleFontSize: 12.5, titleFontWeight: 400, titleLimit: 400 };
  const config = {
    background: "transparent",
    font,
    view: { stroke: null },
    axis: { ...words, ...titles, gridColor: "var(--grid)", domainColor: "var(--edge)", tickColor: "var(--edge)" },
    axisY: { titleAngle: 0, titleAlign: "left", titleAnchor: "start", titleX: 0, titleY: -10, tickCount: 5, domain: false, ticks: false },
    axisX: { grid: false, tickCount: 6, labelFlush: true },
    header: { ...words, ...titles },
    rule: { opacity: 0.4, strokeWidth: 2 },
    bar: { color: "var(--KL)" },
    line: { strokeWidth: 2.2 },
    circle: { opacity: 0.85, size: 36 },
    area: { opacity: 0.2 },
    legend: { ...words, ...titles, orient: "bottom" },
  };

  // The kinds of charts. A field along an axis has room for its values unless its scale is given.
  const axis = (field, title = field, scale = {}) => ({
    field,
    title,
    type: "quantitative",
    scale: { ...(scale.type === "log" ? {} : { zero: false }), padding: scale.zero ? 0 : 6, ...scale },
  });
  const unit = (field) => axis(field, field, { domain: [0, 1], padding: 0 });
  const named = (field, sort, more = {}) => ({ field, sort, type: "nominal", title: null, axis: more });
  const fields = (values, name) => [...new Set(values.map((value) => value[name]))];
  const run = { field: "run", type: "nominal", legend: null };
  const marks = (type, x, y, encoding = {}, mark = {}) => ({
    mark: { type, clip: type === "line" || type === "area", tooltip: { content: "data" }, ...mark },
    encoding: { x, y, color: { ...run }, ...encoding },
  });
  const only = (equal, layer) => ({ transform: [{ filter: { field: "part", equal } }], ...layer });
  const guide = (x, y, ...points) => ({
    data: { values: points.map(([a, b]) => ({ [x.field]: a, [y.field]: b })) },
    mark: { type: "line", strokeDash: [3, 3], strokeWidth: 1, color: "var(--edge)" },
    encoding: { x, y },
  });
  const ends = (values, name) => {
    const every = values.map((value) => value[name]).filter(Number.isFinite);
    return [Math.min(...every), Math.max(...every)];
  };
  // Values many times apart go on a logarithmic axis.
  const apart = ([low, high]) => ({ type: 0 < 30 * low && 30 * low < high ? "log" : "linear" });
  // The ends of an axis on which one curve that begins far off does not flatten the rest.
  const usual = (values, name) => {
    const curves = {};
    for (const value of values)
      if (Number.isFinite(value[name])) (curves[`${value.run} ${value.part}`] ??= []).push(value[name]);
    const every = Object.values(curves).map((curve) => curve.sort((a, b) => a - b));
    const low = Math.min(...every.map((curve) => curve[0]));
    const high = Math.max(...every.map((curve) => curve[curve.length >> 1]));
    const top = Math.min(Math.max(...every.map((curve) => curve.at(-1))), low + 2 * (high - low) + 1e-6 * Math.abs(low) + 1e-12);
    return [low - 0.05 * (top - low), top];
  };
  const diagonal = (across, up, dots) => {
    const [x, y] = [unit(across), unit(up)];
    const line = [guide(x, y, [0, 0], [1, 1]), marks("line", x, y)];
    return { layer: dots ? [...line, marks("circle", x, y, dots)] : line };
  };
  const parts = {
    field: "part",
    type: "nominal",
    title: null,
    scale: { domain: ["training", "validation", "test"], range: ["var(--quiet)", "var(--fair)", "var(--shade)"] },
  };
  const kinds = {
    predicted: ({ values, x: title }) => {
      const [x, y, [low, high]] = [axis("actual", title), axis("predicted"), ends(values, "actual")];
      const bars = marks("rule", x, { ...y, field: "low" }, { y2: { field: "high" } });
      return { height: 260, layer: [guide(x, y, [low, low], [high, high]), bars, marks("circle", x, y)] };
    },
    residuals: ({ values }) => {
      const [x, y] = [axis("predicted"), axis("actual minus predicted")];
      const zero = guide(x, y, ...ends(values, "predicted").map((end) => [end, 0]));
      const transform = [{ calculate: "datum.actual - datum.predicted", as: y.field }];
      return { height: 260, layer: [zero, { transform, ...marks("circle", x, y) }] };
    },
    coverage: () => diagonal("level of the interval", "share of targets inside", {}),
    reliability: () =>
      diagonal("confidence", "accuracy", {
        size: { field: "rows", type: "quantitative", legend: null, scale: { range: [20, 260] } },
      }),
    pit: ({ edges }) => {
      const [x, y] = [unit("PIT"), axis("share of rows", undefined, { zero: true })];
      const steps = marks("line", x, y, {}, { interpolate: "step" });
      return { layer: [...edges.map((edge) => guide(x, y, [0, edge], [1, edge])), steps] };
    },
    risk: ({ y }) => ({ layer: [marks("line", unit("share answered"), axis(y, y, { zero: true }))] }),
    whiskers: ({ values, field, x: title, scale }) => {
      const [names, runs] = [fields(values, field), fields(values, "run")];
      const apart = values.length > names.length ? { yOffset: { field: "run", sort: null } } : {};
      const [x, y] = [axis("middle", title, scale), named(field, names, { labelLimit: 150, grid: true })];
      const bars = marks("rule", { ...x, field: "low" }, y, { x2: { field: "high" }, ...apart }, { opacity: 1 });
      const dots = marks("circle", x, y, apart, { size: 60, opacity: 1 });
      const each = apart.yOffset ? Math.max(20, 11 * runs.length) : 20;
      return { height: 24 + each * names.length, layer: [bars, dots] };
    },
    band: ({ x: across, y: up, dates }) => {
      const [x, y] = [axis("value", across), axis("mean prediction", up)];
      // Dates are days since 1970.
      if (dates) x.axis = { labelExpr: "utcFormat(datum.value * 86400000, '%Y-%m-%d')", tickMinStep: 1, tickCount: 4 };
      return { layer: [marks("area", x, { ...y, field: "low" }, { y2: { field: "high" } }), marks("line", x, y)] };
    },
    epochs: ({ values, y: up }) => {
      const x = { ...axis("epoch"), axis: { tickMinStep: 1 } };
      const y = axis(up, up, up === "nats" ? apart(ends(values, up)) : { domain: usual(values, up), nice: false });
      const bold = [marks("line", x, y)];
      if ("least" in values[0]) bold.unshift(marks("area", x, { ...y, field: "least" }, { y2: { field: "most" } }));
      if (!("part" in values[0])) return { layer: bold };
      const thin = only("training", marks("line", x, y, {}, { strokeWidth: 0.9 }));
      return { layer: [thin, ...bold.map((layer) => only("validation", layer))] };
    },
    histogram: ({ x: title }) => {
      const y = axis("share of rows", undefined, { zero: true });
      return { layer: [marks("line", axis("target", title), y, { color: parts }, { interpolate: "step" })] };
    },
    classes: ({ values }) => {
      const x = named("class", fields(values, "class"), { labelAngle: 0, labelLimit: 70 });
      const apart = { field: "part", sort: parts.scale.domain };
      const y = axis("share of rows", undefined, { zero: true });
      return { layer: [marks("bar", x, y, { color: parts, xOffset: apart })] };
    },
    confusion: ({ names }) => {
      const [x, y] = [named("called", names, { labelLimit: 70, labelAngle: names.length > 6 ? -90 : 0 }), named("class", names, { labelLimit: 110 })];
      x.axis.orient = "top";
      const share = { field: "share of the class", type: "quantitative", legend: null };
      const shade = { color: { value: "var(--shade)" }, opacity: { ...share, scale: { domain: [0, 1], range: [0.04, 0.5] } } };
      const text = { text: { field: "rows" }, color: { value: "var(--ink)" } };
      const layer = [marks("rect", x, y, shade), ...(names.length > 20 ? [] : [marks("text", x, y, text)])];
      return { height: Math.max(90, Math.min(26 * names.length, 420)), layer };
    },
    bars: ({ values, field, x: title }) => {
      const y = named(field, fields(values, field));
      return { height: 20 + 28 * values.length, layer: [marks("bar", axis(title, title, { zero: true }), y)] };
    },
    slice: ({ x, y, log }) => ({
      layer: [marks("circle", axis(x, x, { type: log ? "log" : "linear" }), axis("value", y), {}, { size: 60 })],
    }),
    parallel: ({ values: trials, names, logs }) => {
      const values = names.flatMap((setting) => {
        const warp = (trial) => (logs.includes(setting) ? Math.log(trial[setting]) : trial[setting]);
        const held = trials.filter((trial) => setting in trial);
        const [low, high] = ends(held.map((trial) => ({ at: warp(trial) })), "at");
        const place = (trial) => (warp(trial) - low) / (high - low || 1);
        return held.map((trial) => ({ trial: trial.trial, setting, held: trial[setting], run: trial.run, "from least to most": place(trial) }));
      });
      const x = named("setting", names, { labelAngle: 0, grid: true });
      const look = { opacity: 0.55, point: { size: 30, filled: true } };
      return { data: { values }, layer: [marks("line", x, unit("from least to most"), { detail: { field: "trial" } }, look)] };
    },
  };

  // Runs have the same colour and dash in every chart; a legend stands above each group of charts.
  const runs = JSON.parse(document.getElementById("looks").textContent);
  const own = { KL: [1, 0], JSG: [8, 4], JSA: [9, 3, 2, 3], deterministic: [2, 3] };
  const others = [[1, 0], [12, 3], [5, 2, 2, 2], [3, 2], [10, 2, 2, 2, 2, 2]];
  let other = 0;
  // The first run of each loss has its colour and dash.
  for (const run of runs) {
    const family = run.loss.split(/[(:]/)[0];
    const place = family in own ? family : `other-${other % others.length}`;
    run.dash = own[family] ?? others[other++ % others.length];
    run.colour = `var(--${place})`;
    delete own[family];
  }
  const domain = runs.map((run) => run.name);
  const ranges = { color: runs.map((run) => run.colour), strokeDash: runs.map((run) => run.dash) };
  const coloured = ({ mark, encoding }) => {
    if (encoding?.color?.field !== "run") return false;
    if (mark.type === "line") encoding.strokeDash = { ...encoding.color };
    for (const [channel, range] of Object.entries(ranges))
      if (encoding[channel]) encoding[channel].scale = { domain, range };
    return true;
  };
  const legend = (charts, values) => {
    if (charts.previousElementSibling?.matches(".legend")) return;
    const there = new Set(values.map((value) => value.run));
    const list = made("ul");
    list.className = "legend";
    runs.forEach((run, k) => {
      if (!there.has(run.name)) return;
      const item = made("li", "", list);
      const key = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
      key.setAttribute("viewBox", "0 0 34 12");
      key.setAttribute("class", "key");
      key.setAttribute("aria-hidden", "true");
      line.setAttribute("d", "M0 6H34");
      line.setAttribute("stroke", ranges.color[k]);
      line.setAttribute("stroke-dasharray", run.dash.join(" "));
      key.append(line);
      item.append(key, run.label);
    });
    if (list.children.length > 1) charts.before(list);
  };

  const drawn = async (figure) => {
    const told = JSON.parse(figure.querySelector("script").textContent);
    const values = told.values;
    const size = { width: "container", autosize: { type: "fit-x", contains: "padding" } };
    const spec = { height: 220, ...size, data: { values }, ...kinds[told.kind](told) };
    if (spec.layer.map(coloured).some(Boolean)) legend(figure.parentElement, values);
    const details = figure.querySelector("details");
    const label = figure.querySelector("figcaption b").textContent;
    details.addEventListener("toggle", () => tabled(details, values, `Numbers of ${label}`));
    const { spec: grammar } = vegaLite.compile(spec, { config });
    const view = new vega.View(vega.parse(grammar, null, { ast: true }), {
      expr: vegaInterpreter.expressionInterpreter,
      renderer: "svg",
      container: figure.querySelector(".plot"),
      hover: true,
      tooltip: hover,
      logLevel: vega.Error,
    });
    await view.runAsync();
    // The whole is an image with a name, and its table is beside it.
    figure.querySelector(".plot svg").setAttribute("aria-hidden", "true");
  };
  document.querySelectorAll("table.sortable").forEach(sortable);
  document.querySelectorAll("figure.chart").forEach((figure) => drawn(figure).then(() => figure.classList.add("drawn")));
})();
