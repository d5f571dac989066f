"use strict";
const css = getComputedStyle(document.documentElement);
const color = name => css.getPropertyValue("--" + name).trim() || css.getPropertyValue("--other").trim();
const time = ns => {
  const abs = Math.abs(ns);
  if (abs >= 1e9) return (ns / 1e9).toPrecision(3) + " s";
  if (abs >= 1e6) return (ns / 1e6).toPrecision(3) + " ms";
  if (abs >= 1e3) return (ns / 1e3).toPrecision(3) + " us";
  return Math.round(ns) + " ns";
};
const tip = document.getElementById("tip");
const ROW = 15, LANE = 20, LABEL = 108, AXIS = 22, PAD = 8;

function draw(canvas, view) {
  const names = view.names;
  let from = 0, to = Math.max(view.length, 1), hits = [], hovered = null;
  const levels = view.threads.map((_, t) =>
    1 + view.events.reduce((most, e) => e.thread === t ? Math.max(most, e.depth) : most, 0));
  const threadTop = [];
  let y = AXIS;
  view.threads.forEach((_, t) => { threadTop.push(y); y += levels[t] * ROW + PAD; });
  const gapTop = y; y += LANE + PAD;
  const streamTop = view.streams.map((_, s) => y + s * (LANE + 3));
  const height = y + view.streams.length * (LANE + 3) + 4;
  canvas.style.height = height + "px";

  function paint() {
    const width = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio; canvas.height = height * ratio;
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.clearRect(0, 0, width, height);
    g.font = "11px system-ui, sans-serif";
    g.textBaseline = "middle";
    const scale = (width - LABEL) / (to - from), x = t => LABEL + (t - from) * scale;
    hits = [];
    const ink = color("ink"), muted = color("muted"), line = color("line");
    const step = nice((to - from) / 8);
    g.fillStyle = muted; g.strokeStyle = line; g.lineWidth = 1;
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      g.beginPath(); g.moveTo(x(t) + .5, AXIS - 6); g.lineTo(x(t) + .5, height); g.stroke();
      g.fillText(time(t), x(t) + 3, 8);
    }
    g.save(); g.beginPath(); g.rect(LABEL, AXIS - 4, width - LABEL, height); g.clip();
    const box = (start, end, top, tall, fill, label, item) => {
      if (end < from || start > to) return;
      const left = Math.max(x(start), LABEL), right = Math.min(x(end), width), wide = Math.max(right - left, .6);
      g.fillStyle = fill; g.fillRect(left, top, wide, tall);
      if (wide > 34) {
        g.save(); g.beginPath(); g.rect(left, top, wide, tall); g.clip();
        g.fillStyle = ink; g.fillText(label, left + 3, top + tall / 2 + .5); g.restore();
      }
      hits.push([left, top, left + Math.max(wide, 2), top + tall, item]);
    };
    const host = css.getPropertyValue("--hover").trim(), call = color("in_launch");
    for (const e of view.events)
      box(e.start, e.end, threadTop[e.thread] + e.depth * ROW, ROW - 2, e.call ? call : shade(e.depth, host, line),
        names[e.name], { text: names[e.name], start: e.start, end: e.end, what: e.call ? "call" : "operator" });
    for (const gap of view.gaps) {
      const pieces = gap.cause === "unmatched" ? [["unmatched", gap.start, gap.end]] :
        [[gap.cause, gap.start, gap.launched], ["in_launch", gap.launched, gap.returned],
         ["after_launch", gap.returned, gap.end]];
      for (const [name, start, end] of pieces)
        if (end > start) box(start, end, gapTop, LANE, color(name), name.replace("_", " "),
          { text: "device idle: " + name.replace("_", " "), start, end, what: "gap" });
    }
    const seen = view.operations.filter(o => o.end >= from && o.start <= to);
    const thin = seen.length > 250 ? Math.ceil(seen.length / 160) : 1;
    seen.forEach((o, i) => {
      if (o.launch === null || (i % thin && o !== hovered)) return;
      const bottom = threadTop[o.thread] + levels[o.thread] * ROW;
      g.strokeStyle = o === hovered ? ink : color("arrow");
      g.lineWidth = o === hovered ? 1.6 : 1;
      g.beginPath(); g.moveTo(x(o.launch), bottom - 2); g.lineTo(x(o.start), streamTop[o.lane]); g.stroke();
      if (o === hovered || thin === 1) {
        g.fillStyle = g.strokeStyle; g.beginPath();
        g.moveTo(x(o.start), streamTop[o.lane]); g.lineTo(x(o.start) - 3, streamTop[o.lane] - 5);
        g.lineTo(x(o.start) + 3, streamTop[o.lane] - 5); g.fill();
      }
    });
    for (const o of seen)
      box(o.start, o.end, streamTop[o.lane], LANE, color(o.kind), short(names[o.name]),
        { text: names[o.name], start: o.start, end: o.end, what: o.kind, op: o });
    g.restore();
    g.fillStyle = muted;
    view.threads.forEach((name, t) => g.fillText("thread " + name.slice(-8), 0, threadTop[t] + ROW / 2));
    g.fillText("device idle", 0, gapTop + LANE / 2);
    view.streams.forEach((name, s) => g.fillText(name, 0, streamTop[s] + LANE / 2));
  }
  const short = name => name.replace(/^void /, "").replace(/at::native::|\(anonymous namespace\)::/g, "");
  const nice = raw => {
    const power = Math.pow(10, Math.floor(Math.log10(Math.max(raw, 1))));
    return [1, 2, 5, 10].map(k => k * power).find(s => s >= raw) || raw;
  };
  const shade = (depth, one, two) => depth % 2 ? one : two;
  const at = event => {
    const rect = canvas.getBoundingClientRect();
    return [event.clientX - rect.left, event.clientY - rect.top];
  };
  const moment = px => from + (px - LABEL) / (canvas.clientWidth - LABEL) * (to - from);
  const clamp = () => {
    const span = Math.min(Math.max(to - from, 200), view.length * 1.1);
    from = Math.max(-view.length * .05, Math.min(from, view.length * 1.05 - span)); to = from + span;
  };
  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    const [px] = at(event), centre = moment(px), factor = Math.exp(event.deltaY * .0015);
    from = centre - (centre - from) * factor; to = centre + (to - centre) * factor;
    clamp(); paint();
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", event => { held = [at(event)[0], from, to]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { held = null; });
  canvas.addEventListener("pointermove", event => {
    const [px, py] = at(event);
    if (held) {
      const moved = (px - held[0]) / (canvas.clientWidth - LABEL) * (held[2] - held[1]);
      from = held[1] - moved; to = held[2] - moved; clamp(); paint(); return;
    }
    let found = null;
    for (const hit of hits) if (px >= hit[0] && px <= hit[2] && py >= hit[1] && py <= hit[3]) found = hit[4];
    const op = found && found.op || null;
    if (op !== hovered) { hovered = op; paint(); }
    tip.style.display = found ? "block" : "none";
    if (found) {
      tip.textContent = `${found.text}  |  ${found.what.replace("_", " ")}, ${time(found.end - found.start)} at ${time(found.start)}`
        + (op && op.launch !== null ? `, launched ${time(op.start - op.launch)} before` : "");
      tip.style.left = Math.min(event.clientX + 14, window.innerWidth - 480) + "px";
      tip.style.top = event.clientY + 16 + "px";
    }
  });
  canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  canvas.addEventListener("dblclick", () => { from = 0; to = view.length; paint(); });
  new ResizeObserver(paint).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  paint();
}
for (const canvas of document.querySelectorAll("canvas[data-view]"))
  draw(canvas, JSON.parse(document.getElementById(canvas.dataset.view).textContent));
