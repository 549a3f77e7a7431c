// ---- begin: everything is defined by now

for (const [name, setting] of Object.entries(SETTINGS)) makeControl(name, setting);
for (const name of Object.keys(CHOICES)) {
  byId(name).addEventListener("change", (event) => change({ [name]: event.target.value }));
}
for (const button of document.querySelectorAll("[data-preset]")) {
  button.addEventListener("click", () => change({ ...START, ...PRESETS[button.dataset.preset] }));
}
for (const span of document.querySelectorAll("[data-number]")) makeNumber(span);
for (const button of document.querySelectorAll("[data-put]")) {
  button.addEventListener("click", () => change(JSON.parse(button.dataset.put)));
}
dragBells(byId("bells"));
startNetworks();
window.addEventListener("hashchange", restore);
new ResizeObserver(() => {
  schedule("draw", () => requestAnimationFrame(draw), 50);
  schedule("networks", () => requestAnimationFrame(drawNetworks), 50);
}).observe(byId("charts"));
restore();
