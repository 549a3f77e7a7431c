// Drawing in SVG: axes, lines and shaded areas. Colours and dashes are classes of the style sheet.

const SVG = "http://www.w3.org/2000/svg";
const EDGE = { right: 16, top: 10, bottom: 38 };
const LETTER = 7; // pixels, a digit of an axis at most

function element(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

// Round numbers from low to high, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((size) => size >= rough);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, k) => (first + k) * step);
}

// Powers of ten from low to high, every second or third where there are many.
function decades(low, high) {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first) / 6));
  const powers = Array.from({ length: last - first + 1 }, (_, k) => first + k);
  return powers.filter((power) => power % step === 0).map((power) => 10 ** power);
}

// "1.50e-7" as 1.5·10⁻⁷.
function withPower(text) {
  const [digits, power] = text.split("e");
  const raised = [...String(Number(power))].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");
  const factor = digits.replace(/\.?0+$/, "");
  return factor === "1" ? `10${raised}` : `${factor}·10${raised}`;
}

function tickLabel(value) {
  const size = Math.abs(value);
  if (size < 1e-12) return "0";
  const plain = size >= 0.001 && size < 1e5;
  const text = plain ? String(Number(value.toPrecision(4))) : withPower(value.toExponential(2));
  return text.replace("-", "−");
}

class Chart {
  // x and y are [low, high]; `logarithmic` is for y alone.
  constructor(svg, { x, y, xLabel, yLabel, height, logarithmic = false }) {
    this.svg = svg;
    this.width = Math.max(200, svg.parentElement.clientWidth);
    this.height = height;
    this.range = { x, y };
    const marks = logarithmic ? decades(...y) : ticks(...y, 5);
    this.left = 28 + LETTER * Math.max(...marks.map((mark) => tickLabel(mark).length));
    const [bottom, top] = [height - EDGE.bottom, EDGE.top];
    const right = this.width - EDGE.right;
    const place = ([low, high], [from, to]) => (value) =>
      from + ((value - low) / (high - low)) * (to - from);
    const up = place(logarithmic ? y.map(Math.log10) : y, [bottom, top]);
    this.x = place(x, [this.left, right]);
    this.y = logarithmic ? (value) => up(Math.log10(Math.max(value, 1e-300))) : up;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    const clip = element("clipPath", { id: `${svg.id}-clip` });
    const size = { width: right - this.left, height: bottom - top };
    clip.append(element("rect", { x: this.left, y: top, ...size }));
    svg.append(clip);
    this.axes(xLabel, yLabel, marks);
    this.plot = element("g", { "clip-path": `url(#${svg.id}-clip)` });
    svg.append(this.plot);
  }

  axes(xLabel, yLabel, marks) {
    const bottom = this.height - EDGE.bottom;
    const right = this.width - EDGE.right;
    const add = (...parts) => this.svg.append(element(...parts));
    for (const value of marks) {
      const y = this.y(value);
      add("line", { class: "grid", x1: this.left, x2: right, y1: y, y2: y });
      add("text", { x: this.left - 6, y: y + 4, "text-anchor": "end" }, tickLabel(value));
    }
    for (const value of ticks(...this.range.x, this.width > 420 ? 9 : 5)) {
      const x = this.x(value);
      add("line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4 });
      add("text", { x, y: bottom + 17, "text-anchor": "middle" }, tickLabel(value));
    }
    add("line", { class: "axis", x1: this.left, x2: right, y1: bottom, y2: bottom });
    const middle = (this.left + right) / 2;
    add("text", { class: "label", x: middle, y: this.height - 5, "text-anchor": "middle" }, xLabel);
    const turned = `translate(12 ${(EDGE.top + bottom) / 2}) rotate(-90)`;
    add("text", { class: "label", transform: turned, "text-anchor": "middle" }, yLabel);
  }

  // The x and the y at a pixel.
  valueAt(pixel) {
    const [low, high] = this.range.x;
    return low + ((pixel - this.left) / (this.width - EDGE.right - this.left)) * (high - low);
  }

  heightAt(pixel) {
    const [low, high] = this.range.y;
    const bottom = this.height - EDGE.bottom;
    return low + ((bottom - pixel) / (bottom - EDGE.top)) * (high - low);
  }

  // Far outside the axes a coordinate is held back: drawings take no infinite ones.
  point(x, y) {
    const inside = Math.min(Math.max(this.y(y), -1e4), 1e4);
    return `${this.x(x).toFixed(2)} ${inside.toFixed(2)}`;
  }

  // A line breaks off where the values are not finite.
  line(xs, ys, name) {
    let path = "";
    let joined = false;
    xs.forEach((x, k) => {
      if (Number.isFinite(ys[k])) path += `${joined ? "L" : "M"}${this.point(x, ys[k])}`;
      joined = Number.isFinite(ys[k]);
    });
    this.plot.append(element("path", { class: `line ${name}`, d: path }));
  }

  // The area between the values and 0.
  area(xs, ys, attributes) {
    const finite = xs.map((x, k) => [x, ys[k]]).filter(([, y]) => Number.isFinite(y));
    if (!finite.length) return;
    const above = finite.map(([x, y]) => this.point(x, y)).join("L");
    const [first, last] = [finite[0][0], finite[finite.length - 1][0]];
    const path = `M${this.point(first, 0)}L${above}L${this.point(last, 0)}Z`;
    this.plot.append(element("path", { ...attributes, d: path }));
  }

  // A stretch of x over the whole height.
  band(low, high, attributes) {
    const [least, most] = this.range.x;
    const [from, to] = [low, high].map((x) => this.x(Math.min(Math.max(x, least), most)));
    if (to <= from) return;
    const size = { y: EDGE.top, height: this.height - EDGE.top - EDGE.bottom };
    this.plot.append(element("rect", { ...attributes, ...size, x: from, width: to - from }));
  }

  horizontal(y, name) {
    const ends = { x1: this.x(this.range.x[0]), x2: this.x(this.range.x[1]) };
    this.plot.append(element("line", { class: name, ...ends, y1: this.y(y), y2: this.y(y) }));
  }

  vertical(x, name) {
    const ends = { y1: EDGE.top, y2: this.height - EDGE.bottom };
    this.plot.append(element("line", { class: name, ...ends, x1: this.x(x), x2: this.x(x) }));
  }

  dot(x, y, name, r = 4.5) {
    if (!Number.isFinite(y)) return;
    this.plot.append(element("circle", { class: name, cx: this.x(x), cy: this.y(y), r }));
  }

  // The area between two lines.
  between(xs, lows, highs, attributes) {
    const up = xs.map((x, k) => this.point(x, highs[k])).join("L");
    const back = xs.map((x, k) => this.point(x, lows[k])).reverse().join("L");
    this.plot.append(element("path", { ...attributes, d: `M${up}L${back}Z` }));
  }

  // Words beside a point at the upper edge, on the side that has room; a second one goes below.
  label(x, y, text, name) {
    const right = this.x(x) > (this.left + this.width) / 2;
    this.labels = (this.labels ?? 0) + 1;
    const place = { x: this.x(x) + (right ? -8 : 8), y: this.y(y) + 1 + 15 * this.labels };
    const look = { class: `told ${name}`, "text-anchor": right ? "end" : "start" };
    this.svg.append(element("text", { ...look, ...place }, text));
  }

  // Diagonal lines of a colour, for areas that must differ in more than their colour.
  hatching(name) {
    const id = `${this.svg.id}-hatch`;
    const shape = { id, width: 7, height: 7, patternUnits: "userSpaceOnUse" };
    const pattern = element("pattern", { ...shape, patternTransform: "rotate(45)" });
    pattern.append(element("line", { class: `stroke ${name}`, x1: 0, x2: 0, y1: 0, y2: 7 }));
    this.svg.append(pattern);
    return `url(#${id})`;
  }
}
