"use strict";
// The steps of a session: medians and longest of each second, what was tried and what was on as bands.
(() => {
  const found = JSON.parse(document.getElementById("step-data").textContent);
  const box = document.querySelector(".steps");
  const first = found.at[0], last = found.at[found.at.length - 1];
  const sorted = [...found.longest].sort((a, b) => a - b);
  const most = Math.max(...found.median, found.before_ms || 0, sorted[Math.floor(.95 * (sorted.length - 1))]) * 1.15;
  const clipped = found.longest.map(each => Math.min(each, most));
  const BAND_ROWS = 4;  // of names, one below the other
  let chart = null;
  const faint = (name, part) => `color-mix(in srgb, ${color(name)} ${part}%, transparent)`;
  const plugin = { hooks: { drawClear: bands, draw: over } };

  function bands(u) {
    const g = u.ctx, { left, top, width, height } = u.bbox, ratio = devicePixelRatio;
    g.save(); g.beginPath(); g.rect(left, top, width, height); g.clip();
    g.font = `${12 * ratio}px system-ui, sans-serif`; g.textBaseline = "top";
    // A band's name may reach beyond it, up to the next name in its row; where it does not fit it is left to the list.
    const ends = Array(BAND_ROWS).fill(-Infinity), names = [];
    found.bands.forEach((band, i) => {
      const from = u.valToPos(band.from_s, "x", true), to = Math.max(u.valToPos(band.to_s, "x", true), from + ratio);
      g.fillStyle = faint(band.kind === "on" ? "better" : "overhead", band.kind === "on" ? 22 : 14);
      g.fillRect(from, top, to - from, height);
      g.fillStyle = faint(band.kind === "on" ? "better" : "overhead", 55);
      g.fillRect(from, top, ratio, height);
      const wide = g.measureText(band.text).width, row = ends.findIndex(end => end <= from);
      const start = Math.min(from + 4 * ratio, left + width - wide - 4 * ratio);
      if (row < 0 || start < ends[row] || to < left || from > left + width) return;
      ends[row] = start + wide + 8 * ratio;
      names.push([band.text, start, top + (4 + 15 * row) * ratio]);
    });
    g.fillStyle = color("ink");
    for (const [text, x, y] of names) g.fillText(text, x, y);
    box.dataset.named = names.map(([text]) => text).join(", ");
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
      const y = top + (8 + 15 * BAND_ROWS) * ratio;
      if (x > free) { g.fillText(text, Math.min(x - 4 * ratio, left + width - g.measureText(text).width), y); free = x + g.measureText(text).width + 6 * ratio; }
    });
    g.restore();
  }
  function build() {
    if (chart) chart.destroy();
    const axis = { stroke: color("muted"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line") }, font: "12px system-ui, sans-serif" };
    chart = new uPlot({
      width: box.clientWidth, height: 320, plugins: [plugin],
      scales: { x: { time: false }, y: { range: () => [0, most] } },
      axes: [{ ...axis, values: (u, all) => all.map(each => each + " s") },
             { ...axis, size: 64, values: (u, all) => all.map(each => each + " ms") }],
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
  new ResizeObserver(() => chart.setSize({ width: box.clientWidth, height: 320 })).observe(box);
  window.addEventListener("recolour", build);
})();
