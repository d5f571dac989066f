"use strict";
// The steps of a session: medians and longest of each second, what was tried and what was on as bands.
(() => {
  const found = JSON.parse(document.getElementById("step-data").textContent);
  const box = document.querySelector(".steps");
  const first = found.at[0], last = found.at[found.at.length - 1];
  const sorted = [...found.longest].sort((a, b) => a - b);
  const most = Math.max(...found.median, found.before_ms || 0, sorted[Math.floor(.95 * (sorted.length - 1))]) * 1.15;
  const clipped = found.longest.map(each => Math.min(each, most));
  // Above the curve each remedy has a lane in which it is tried and on; those beyond the last are left to the list.
  const LANE = 17, MOST_LANES = 8;  // pixels; lanes
  const lanes = [...new Set(found.bands.map(each => each.text))].slice(0, MOST_LANES);
  const HEIGHT = 320 + LANE * lanes.length;
  let chart = null;
  const faint = (name, part) => `color-mix(in srgb, ${color(name)} ${part}%, transparent)`;
  const plugin = { hooks: { drawClear: bands, draw: over } };

  function bands(u) {
    const g = u.ctx, { left, top, width, height } = u.bbox, ratio = devicePixelRatio, named = [];
    g.save(); g.beginPath(); g.rect(left, top, width, height); g.clip();
    g.font = `${12 * ratio}px system-ui, sans-serif`; g.textBaseline = "top";
    lanes.forEach((name, lane) => {
      const y = top + lane * LANE * ratio, high = (LANE - 2) * ratio;
      let start = null;
      for (const band of found.bands) {
        if (band.text !== name) continue;
        const from = u.valToPos(band.from_s, "x", true), to = Math.max(u.valToPos(band.to_s, "x", true), from + ratio);
        if (to < left || from > left + width) continue;
        g.fillStyle = faint(band.kind === "on" ? "better" : "overhead", band.kind === "on" ? 45 : 18);
        g.fillRect(from, y, to - from, high);
        g.fillStyle = faint("better", band.kind === "on" ? 9 : 0);
        g.fillRect(from, top + lanes.length * LANE * ratio, to - from, height);
        start = Math.min(start ?? from, from);
      }
      const wide = g.measureText(name).width;
      if (start === null || wide > width) return;
      g.fillStyle = color("ink");
      g.fillText(name, Math.max(left, Math.min(start, left + width - wide - 8 * ratio)) + 4 * ratio, y + 2 * ratio);
      named.push(name);
    });
    box.dataset.named = named.join(", ");
    g.restore();
  }
  function over(u) {
    const g = u.ctx, { left, top, width, height } = u.bbox, ratio = devicePixelRatio;
    g.save(); g.beginPath(); g.rect(left, top, width, height); g.clip();
    g.font = `${12 * ratio}px system-ui, sans-serif`;
    if (found.before_ms) {
      const y = u.valToPos(found.before_ms, "y", true);
      g.strokeStyle = g.fillStyle = color("muted"); g.setLineDash([6 * ratio, 4 * ratio]); g.lineWidth = ratio;
      g.beginPath(); g.moveTo(left, y); g.lineTo(left + width, y); g.stroke(); g.setLineDash([]);
      g.textAlign = "right"; g.textBaseline = "bottom";
      g.fillText(`before: ${found.before_ms.toPrecision(3)} ms`, left + width - 4 * ratio, y - 3 * ratio);
    }
    for (const band of found.bands) for (const [i, ns] of (band.levels_ns || []).entries()) {  // blocks with and without in turn
      const y = u.valToPos(ns / 1e6, "y", true);
      g.strokeStyle = color(i ? "better" : "muted"); g.lineWidth = 3 * ratio;
      g.beginPath(); g.moveTo(u.valToPos(band.from_s, "x", true), y); g.lineTo(u.valToPos(band.to_s, "x", true), y); g.stroke();
    }
    g.textAlign = "left"; g.textBaseline = "bottom";
    found.marks.forEach((mark, i) => {
      const x = u.valToPos(mark.at_s, "x", true);
      g.strokeStyle = color(mark.kind === "measured" ? "other" : "accent"); g.lineWidth = ratio;
      g.beginPath(); g.moveTo(x, top + height); g.lineTo(x, top + height - 14 * ratio); g.stroke();
      const wide = g.measureText(mark.text).width;
      const next = i + 1 < found.marks.length ? u.valToPos(found.marks[i + 1].at_s, "x", true) : left + width;
      if (x + wide + 6 * ratio > next) return;  // words across other marks could not be read
      g.fillStyle = color("muted"); g.fillText(mark.text, x + 3 * ratio, top + height - 3 * ratio);
    });
    g.fillStyle = color("ink"); g.textBaseline = "top";
    let free = -Infinity;
    found.longest.forEach((each, i) => {
      if (each <= most) return;
      const x = u.valToPos(found.at[i], "x", true), text = "↑ " + time(each * 1e6);
      const y = top + (4 + LANE * lanes.length) * ratio;
      if (x > free) { g.fillText(text, Math.min(x - 4 * ratio, left + width - g.measureText(text).width), y); free = x + g.measureText(text).width + 6 * ratio; }
    });
    g.restore();
  }
  // How much taller the plot is than what is left of it below the lanes.
  const room = u => { const high = u.bbox.height / devicePixelRatio; return high > 0 ? high / Math.max(1, high - LANE * lanes.length) : 1; };
  function build() {
    if (chart) chart.destroy();
    const axis = { stroke: color("muted"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line") }, font: "12px system-ui, sans-serif" };
    chart = new uPlot({
      width: box.clientWidth, height: HEIGHT, plugins: [plugin],
      scales: { x: { time: false }, y: { range: u => [0, most * room(u)] } },
      axes: [{ ...axis, values: (u, all) => all.map(each => each + " s") },
             { ...axis, size: 64, values: (u, all) => all.map(each => each > most ? "" : each + " ms") }],
      cursor: { y: false, drag: { x: true, y: false } },
      series: [
        { label: "at", value: (u, each) => each == null ? "-" : each.toFixed(0) + " s" },
        { label: "longest", stroke: color("other"), width: 0, points: { show: true, size: 4, fill: color("other"), stroke: color("other") },
          value: (u, each, s, i) => i == null ? "-" : time(found.longest[i] * 1e6) },
        { label: "median", stroke: color("memory"), width: 2, points: { show: false },
          value: (u, each) => each == null ? "-" : time(each * 1e6) },
      ],
    }, [found.at, clipped, found.median], box);
  }
  const show = (from, to) => {
    const span = Math.min(Math.max(to - from, 2), last - first);
    const start = Math.min(Math.max(from, first), last - span);
    chart.setScale("x", { min: start, max: start + span });
  };
  const act = {
    in: (from, to) => show(from + (to - from) / 4, to - (to - from) / 4),
    out: (from, to) => show(from - (to - from) / 2, to + (to - from) / 2),
    all: () => show(first, last),
    left: (from, to) => show(from - (to - from) / 4, to - (to - from) / 4),
    right: (from, to) => show(from + (to - from) / 4, to + (to - from) / 4),
  };
  const run = name => act[name](chart.scales.x.min, chart.scales.x.max);
  const keys = { "+": "in", "=": "in", w: "in", "-": "out", s: "out", ArrowLeft: "left", a: "left", ArrowRight: "right", d: "right", 0: "all" };
  box.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault(); run(keys[event.key]);
  });
  for (const button of document.querySelectorAll("[data-act]")) button.addEventListener("click", () => run(button.dataset.act));
  build();
  new ResizeObserver(() => chart.setSize({ width: box.clientWidth, height: HEIGHT })).observe(box);
  window.addEventListener("recolour", build);
})();
