"use strict";
// On a touch screen a finger that moves over a curve scrolls the page; only the 3-D figures keep the gesture.
const touch = window.matchMedia("(hover: none)").matches;
const config = { displayModeBar: touch ? false : "hover", displaylogo: false, responsive: true, scrollZoom: false };
// Named one by one: plotly's own choice includes a button that sends the data to a server.
const buttonsOfPlane = ["toImage", "zoom2d", "pan2d", "resetScale2d"];
const buttonsOfSpace = ["toImage", "orbitRotation", "zoom3d", "pan3d", "resetCameraDefault3d"];
const labelWidth = 600; // pixels; below, labels inside the bars would shrink until nobody reads them
const paperWidth = 700; // pixels of an A4 or letter page between its margins

// A WebGL canvas prints blank unless it keeps what it has drawn.
const getContext = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind, options) {
  return getContext.call(this, kind, kind.includes("webgl") ? { ...options, preserveDrawingBuffer: true } : options);
};

for (const source of document.querySelectorAll('script[type="application/json"][data-for]')) {
  const name = source.dataset.for;
  const place = document.getElementById(name);
  const { figure, choices } = JSON.parse(source.textContent);
  if (touch) figure.layout.dragmode = figure.layout.scene ? "orbit" : false;
  for (const trace of figure.data) {
    if (trace.type === "bar" && place.clientWidth < labelWidth) delete trace.text;
  }
  const modeBarButtons = [figure.layout.scene ? buttonsOfSpace : buttonsOfPlane];
  const toImageButtonOptions = { filename: name, scale: 2 };
  Plotly.newPlot(place, figure.data, figure.layout, { ...config, modeBarButtons, toImageButtonOptions });
  for (const button of document.querySelectorAll(`.choices[data-for="${name}"] button`)) {
    button.addEventListener("click", () => choose(place, button, choices[button.dataset.index]));
  }
  const printedWidth = place.closest(".curves, .panels") ? paperWidth / 2 - 10 : paperWidth;
  window.addEventListener("beforeprint", () => Plotly.relayout(place, { width: printedWidth }));
  window.addEventListener("afterprint", () => Plotly.relayout(place, { width: null, autosize: true }));
}

function choose(place, chosen, choice) {
  for (const button of chosen.parentElement.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button === chosen));
  }
  Plotly.update(place, choice.traces || {}, choice.layout || {});
}
