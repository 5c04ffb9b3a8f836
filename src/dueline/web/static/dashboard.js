// Live updates, charts and the keyboard. Pages can be read without any of it.
"use strict";

const base = document.body.dataset.base;
const live = document.getElementById("live");
const toggle = document.getElementById("live-toggle");
let isLive = true;

function isBusy() {
  const active = document.activeElement;
  const isTyping = live && active && live.contains(active) && active.matches("input, select, button");
  return !isLive || document.hidden || isTyping || Boolean(live && live.querySelector("details[open], input:checked")) ||
    String(window.getSelection()).length > 0;
}

function setLive(value) {
  isLive = value;
  toggle.setAttribute("aria-pressed", String(value));
  toggle.textContent = value ? "Live" : "Paused";
}

if (live || document.getElementById("charts")) {
  toggle.hidden = false;
  toggle.addEventListener("click", () => setLive(!isLive));
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (isBusy()) event.preventDefault();
  });
  let row = -1;  // the row that has the focus, by its number: rows are replaced
  document.addEventListener("htmx:beforeSwap", (event) => {
    row = rows().indexOf(document.activeElement);
    // The user may have ticked a box since the request was sent.
    if (event.detail.xhr.status >= 400 || isBusy()) event.detail.shouldSwap = false;
  });
  document.addEventListener("htmx:afterSwap", () => {
    toggle.classList.remove("lost");
    if (row >= 0 && rows()[row]) rows()[row].focus();
  });
  for (const name of ["htmx:sendError", "htmx:responseError"]) {
    document.addEventListener(name, () => toggle.classList.add("lost"));
  }
}

// The keyboard

function rows() {
  return [...document.querySelectorAll("tr[tabindex]")];
}

function move(step) {
  const all = rows();
  const next = all[all.indexOf(document.activeElement) + step] || all[step > 0 ? 0 : all.length - 1];
  if (next) next.focus();
}

let isGoing = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  if (isGoing) {
    isGoing = false;
    const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link) link.click();
    return;
  }
  if (event.key === "/") {
    event.preventDefault();
    const filter = document.getElementById("filter");
    if (filter) filter.focus();
    else window.location.assign(`${base}/jobs`);
  } else if (event.key === "g") {
    isGoing = true;
  } else if (event.key === "j" || event.key === "k") {
    move(event.key === "j" ? 1 : -1);
  } else if (event.key === "Enter" && event.target.matches("tr[tabindex]")) {
    event.target.querySelector("a")?.click();
  } else if (event.key === "p" && !toggle.hidden) {
    setLive(!isLive);
  } else if (event.key === "?") {
    document.getElementById("help").showModal();
  }
});

// Charts

const charts = document.getElementById("charts");

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const COLORS = { 1: "--bar-normal", 2: "--bar-high", 3: "--violet" };
const DASHES = { 1: undefined, 2: [6, 3], 3: [2, 2] };

function isKnown(value) {
  return value !== null && value !== undefined;
}

// Values between which nothing is known for longer than the gap are not joined: uPlot leaves a gap
// at null, and draws over undefined.
function bridged(at, values, gap) {
  const joined = [...values];
  let last = -1;
  values.forEach((value, place) => {
    if (value === null) return;
    if (last >= 0 && at[place] - at[last] <= gap) joined.fill(undefined, last + 1, place);
    last = place;
  });
  return joined;
}

function isAlone(values, place) {
  let before = place - 1;
  let after = place + 1;
  while (before >= 0 && values[before] === undefined) before -= 1;
  while (after < values.length && values[after] === undefined) after += 1;
  return isKnown(values[place]) && !isKnown(values[before]) && !isKnown(values[after]);
}

function drawStarts(chart) {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.strokeStyle = color("--muted");
  ctx.setLineDash([3, 4]);
  for (const [at] of starts) {
    const x = chart.valToPos(at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

let starts = [];

function label(at, step, span) {
  const text = new Date(at * 1000).toISOString();
  return span > 2 * 86400 ? text.slice(5, 10) : text.slice(11, step < 60 ? 19 : 16);
}

function makeChart(place) {
  const lines = place.dataset.lines.split(" ").map((line) => line.split(":"));
  const axis = () => ({
    stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false },
    font: "11px system-ui, sans-serif", size: 42,
  });
  const chart = new uPlot({
    width: place.clientWidth, height: 170, cursor: { drag: { x: false, y: false } },
    legend: { live: false },
    scales: { y: { range: (_, least, most) => [0, most > 0 ? most * 1.15 : 1] } },
    axes: [{
      ...axis(), size: 26, space: 70,
      values: (self, times) => times.map((at) => label(at, times[1] - times[0], self.scales.x.max - self.scales.x.min)),
    }, axis()],
    series: [{}, ...lines.map(([, label, number]) => ({
      label, stroke: color(COLORS[number]), width: 2, dash: DASHES[number],
      points: {
        show: true, size: 4, fill: color(COLORS[number]),
        filter: (self, number) => self.data[number].flatMap((_, place) => isAlone(self.data[number], place) ? [place] : []),
      },
    }))],
    hooks: { draw: [drawStarts] },
  }, [[], ...lines.map(() => [])], place);
  return { place, chart, names: lines.map(([name]) => name) };
}

if (charts && window.uPlot) {
  charts.hidden = false;
  let made = [...charts.querySelectorAll(".chart")].map(makeChart);
  let last = null;

  const show = () => {
    starts = last.starts;
    for (const { chart, names } of made) {
      chart.setData([last.at, ...names.map((name) => bridged(last.at, last[name], last.gap))]);
    }
  };
  const remake = () => {
    for (const { chart } of made) chart.destroy();
    made = [...charts.querySelectorAll(".chart")].map(makeChart);
    if (last) show();
  };
  const update = async () => {
    if (last && (!isLive || document.hidden)) return;
    try {
      const answer = await fetch(charts.dataset.src);
      if (!answer.ok) return;
      last = await answer.json();
      show();
    } catch {
      toggle.classList.add("lost");
    }
  };
  window.addEventListener("resize", () => {
    for (const { place, chart } of made) chart.setSize({ width: place.clientWidth, height: 170 });
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", remake);
  update();
  setInterval(update, 1000 * Number(charts.dataset.every));
}
