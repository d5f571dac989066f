"use strict";
// The timeline of one device: host threads above, its idle time explained, its streams below; a map of the whole span.
const tip = document.getElementById("tip");
const ROW = 19, LANE = 28, LABEL = 104, AXIS = 24, PAD = 10, MAP = 44, NAME = 4;
const timelines = {};

function draw(section, view) {
  const canvas = section.querySelector("canvas.main"), map = section.querySelector("canvas.map");
  const names = view.names, span = Math.max(view.span, 1);
  const operations = view.operations.map(([start, end, lane, kind, name, launch, thread]) => ({ start, end, lane, kind: names[kind], name, launch, thread }));
  const events = view.events.map(([start, end, thread, depth, call, name]) => ({ start, end, thread, depth, call, name }));
  const gaps = view.gaps.map(([start, launched, returned, end, cause]) => ({ start, launched, returned, end, cause: names[cause] }));
  const first = view.stretches[0];
  let from = first[0], to = Math.max(first[1], from + 1), hits = [], hovered = null, marked = null;
  const narrow = () => canvas.clientWidth < 560 ? 16 : LABEL;
  const levels = view.threads.map((_, t) => 1 + events.reduce((most, e) => e.thread === t ? Math.max(most, e.depth) : most, 0));
  const threadTop = [];
  let y = AXIS;
  view.threads.forEach((_, t) => { threadTop.push(y); y += levels[t] * ROW + PAD; });
  const gapTop = y; y += LANE + PAD;
  const streamTop = view.streams.map((_, s) => y + s * (LANE + 3));
  const height = y + view.streams.length * (LANE + 3) + 4;
  canvas.style.height = height + "px"; map.style.height = MAP + "px";

  function context(target, tall) {
    const ratio = window.devicePixelRatio || 1;
    target.width = target.clientWidth * ratio; target.height = tall * ratio;
    const g = target.getContext("2d");
    g.scale(ratio, ratio); g.clearRect(0, 0, target.clientWidth, tall);
    g.font = "12px system-ui, sans-serif"; g.textBaseline = "middle";
    return g;
  }
  let asked = false;
  const paint = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; paintMain(); paintMap(); }); } };

  function paintMain() {
    const width = canvas.clientWidth, left = narrow();
    if (!width) return;
    const g = context(canvas, height), scale = (width - left) / (to - from), x = t => left + (t - from) * scale;
    hits = [];
    const labels = [], colors = {}, tone = name => colors[name] || (colors[name] = color(name));
    const ink = tone("ink"), muted = tone("muted"), line = tone("line"), host = tone("host_event"), call = tone("in_launch");
    const step = nice((to - from) / (width / 130));
    g.fillStyle = muted; g.strokeStyle = line; g.lineWidth = 1;
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      g.beginPath(); g.moveTo(x(t) + .5, AXIS - 6); g.lineTo(x(t) + .5, height); g.stroke();
      g.fillText(time(t), x(t) + 3, 9);
    }
    g.save(); g.beginPath(); g.rect(left, AXIS - 4, width - left, height); g.clip();
    let bare = from;
    for (const [start, end] of [...view.stretches].sort((a, b) => a[0] - b[0]).concat([[to, to]])) {
      if (start > bare && start > from) veil(g, x(Math.max(bare, from)), x(Math.min(start, to)), line, muted);
      bare = Math.max(bare, end);
      if (bare >= to) break;
    }
    const dust = {};  // of each row and colour: the pixel that is full already
    const box = (start, end, top, tall, fill, label, item) => {
      if (end < from || start > to) return;
      const l = Math.max(x(start), left), r = Math.min(x(end), width), wide = Math.max(r - l, .6);
      if (wide < 1) {
        const pixel = Math.round(2 * l), key = top + fill;
        if (dust[key] === pixel) return;
        dust[key] = pixel;
      }
      g.fillStyle = fill; g.fillRect(l, top, wide, tall);
      if (wide > 34) labels.push([label.slice(0, (wide - NAME) / 6.4), l + NAME, top + tall / 2 + .5]);
      hits.push([l, top, l + Math.max(wide, 2), top + tall, item]);
    };
    for (const e of events)
      box(e.start, e.end, threadTop[e.thread] + e.depth * ROW, ROW - 2, e.call ? call : e.depth % 2 ? host : line,
        names[e.name], { text: names[e.name], start: e.start, end: e.end, what: e.call ? "call" : "operator" });
    for (const gap of gaps) {
      const pieces = gap.cause === "unmatched" ? [["unmatched", gap.start, gap.end]] :
        [[gap.cause, gap.start, gap.launched], ["in_launch", gap.launched, gap.returned], ["after_launch", gap.returned, gap.end]];
      for (const [name, start, end] of pieces)
        if (end > start) box(start, end, gapTop, LANE, tone(name), name.replace("_", " "),
          { text: "device idle: " + name.replace("_", " "), start, end, what: "gap" });
    }
    const seen = operations.filter(o => o.end >= from && o.start <= to);
    const thin = seen.length > 250 ? Math.ceil(seen.length / 160) : 1;
    const shown = seen.filter((o, i) => o.launch !== null && i % thin === 0);
    const arrows = (all, tips, style, wide) => {
      g.strokeStyle = g.fillStyle = style; g.lineWidth = wide;
      g.beginPath();
      for (const o of all) { g.moveTo(x(o.launch), threadTop[o.thread] + levels[o.thread] * ROW - 2); g.lineTo(x(o.start), streamTop[o.lane]); }
      g.stroke();
      if (!tips) return;
      g.beginPath();
      for (const o of all) {
        const at = x(o.start), down = streamTop[o.lane];
        g.moveTo(at, down); g.lineTo(at - 3, down - 5); g.lineTo(at + 3, down - 5);
      }
      g.fill();
    };
    arrows(shown, thin === 1, tone("arrow"), 1);
    if (hovered && hovered.launch !== null) arrows([hovered], true, ink, 1.6);
    for (const o of seen)
      box(o.start, o.end, streamTop[o.lane], LANE, tone(o.kind), short(names[o.name]),
        { text: names[o.name], start: o.start, end: o.end, what: o.kind, op: o });
    g.fillStyle = ink;
    for (const [label, at, middle] of labels) g.fillText(label, at, middle);
    if (marked) {
      g.strokeStyle = tone("accent"); g.lineWidth = 2;
      g.strokeRect(x(marked[0]), gapTop - 3, Math.max(x(marked[1]) - x(marked[0]), 2), LANE + 6);
    }
    g.restore();
    if (left < LABEL) return;
    g.fillStyle = muted;
    view.threads.forEach((name, t) => g.fillText("thread " + name.slice(-8), 0, threadTop[t] + ROW / 2));
    g.fillText("device idle", 0, gapTop + LANE / 2);
    view.streams.forEach((name, s) => g.fillText(name, 0, streamTop[s] + LANE / 2));
  }
  function veil(g, l, r, line, muted) {
    g.save(); g.beginPath(); g.rect(l, gapTop - 4, r - l, height); g.clip();
    g.strokeStyle = line; g.lineWidth = 1;
    for (let at = l - height; at < r; at += 9) { g.beginPath(); g.moveTo(at, height); g.lineTo(at + height, 0); g.stroke(); }
    g.fillStyle = muted;
    if (r - l > 150) g.fillText("not drawn: see the map", l + 8, streamTop.length ? streamTop[0] + LANE / 2 : gapTop + LANE / 2);
    g.restore();
  }
  function paintMap() {
    const width = map.clientWidth;
    if (!width) return;
    const g = context(map, MAP), x = t => t / span * width, all = view.busy_percent.length, each = width / all;
    g.fillStyle = color("line"); g.fillRect(0, MAP - 6, width, 2);
    g.fillStyle = color("pointwise");
    view.busy_percent.forEach((part, i) => g.fillRect(i * each, (MAP - 8) * (1 - part / 100), Math.max(each, .8), (MAP - 8) * part / 100));
    g.fillStyle = color("muted");
    for (const [start, end] of view.stretches) g.fillRect(x(start), MAP - 6, Math.max(x(end) - x(start), 2), 4);
    g.strokeStyle = color("accent"); g.lineWidth = 2;
    g.strokeRect(Math.max(x(from), 1), 1, Math.max(Math.min(x(to), width - 1) - Math.max(x(from), 1), 3), MAP - 3);
  }
  const short = name => name.replace(/^void /, "").replace(/at::native::|\(anonymous namespace\)::/g, "");
  const nice = raw => {
    const power = Math.pow(10, Math.floor(Math.log10(Math.max(raw, 1))));
    return [1, 2, 5, 10].map(k => k * power).find(s => s >= raw) || raw;
  };
  const place = (event, target) => { const r = target.getBoundingClientRect(); return [event.clientX - r.left, event.clientY - r.top]; };
  const moment = px => from + (px - narrow()) / (canvas.clientWidth - narrow()) * (to - from);
  function show(start, end) {
    const wide = Math.min(Math.max(end - start, 200), span * 1.04);
    from = Math.max(-span * .02, Math.min(start, span * 1.02 - wide)); to = from + wide;
    canvas.dataset.from = Math.round(from); canvas.dataset.to = Math.round(to);
    paint();
  }
  const zoom = (factor, centre = (from + to) / 2) => show(centre - (centre - from) * factor, centre + (to - centre) * factor);
  const acts = {
    in: () => zoom(.6), out: () => zoom(1 / .6), left: () => show(from - (to - from) * .25, to - (to - from) * .25),
    right: () => show(from + (to - from) * .25, to + (to - from) * .25), step: () => show(first[0], first[1]), all: () => show(0, span),
  };
  const keys = { w: "in", s: "out", a: "left", d: "right", "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", ArrowUp: "in", ArrowDown: "out", 0: "step", 9: "all" };
  section.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault(); acts[keys[event.key]]();
  });
  for (const button of section.querySelectorAll("[data-act]")) button.addEventListener("click", () => acts[button.dataset.act]());
  canvas.addEventListener("wheel", event => {
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const moved = (event.deltaX || event.deltaY) / canvas.clientWidth * (to - from);
      show(from + moved, to + moved);
    } else zoom(Math.exp(event.deltaY * .0015), moment(place(event, canvas)[0]));
    event.preventDefault();
  }, { passive: false });
  const held = new Map();
  let grip = null;
  const take = () => {
    const at = [...held.values()];
    grip = at.length ? { from, to, centre: at.reduce((a, b) => a + b, 0) / at.length, apart: at.length > 1 ? Math.abs(at[0] - at[1]) : 0 } : null;
  };
  canvas.addEventListener("pointerdown", event => { held.set(event.pointerId, place(event, canvas)[0]); canvas.setPointerCapture(event.pointerId); take(); });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, event => { held.delete(event.pointerId); take(); });
  canvas.addEventListener("pointermove", event => {
    const [px, py] = place(event, canvas);
    if (held.has(event.pointerId) && grip) {
      held.set(event.pointerId, px);
      const at = [...held.values()], centre = at.reduce((a, b) => a + b, 0) / at.length, room = canvas.clientWidth - narrow();
      const factor = at.length > 1 && grip.apart > 5 ? grip.apart / Math.max(Math.abs(at[0] - at[1]), 5) : 1;
      const wide = (grip.to - grip.from) * factor, under = grip.from + (grip.centre - narrow()) / room * (grip.to - grip.from);
      const start = under - (centre - narrow()) / room * wide;
      show(start, start + wide);
      return;
    }
    let found = null;
    for (const hit of hits) if (px >= hit[0] && px <= hit[2] && py >= hit[1] && py <= hit[3]) found = hit[4];
    const op = found && found.op || null;
    if (op !== hovered) { hovered = op; paint(); }
    tip.style.display = found ? "block" : "none";
    if (found) {
      tip.textContent = `${found.text}  |  ${found.what.replace("_", " ")}, ${time(found.end - found.start)} at ${time(found.start)}`
        + (op && op.launch !== null ? `, launched ${time(op.start - op.launch)} before` : "");
      tip.style.left = Math.max(4, Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)) + "px";
      tip.style.top = event.clientY + 16 + "px";
    }
  });
  canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  canvas.addEventListener("dblclick", acts.step);
  const steer = event => {
    if (event.type === "pointermove" && !event.buttons) return;
    const centre = place(event, map)[0] / map.clientWidth * span, wide = to - from;
    show(centre - wide / 2, centre + wide / 2);
  };
  map.addEventListener("pointerdown", event => { map.setPointerCapture(event.pointerId); steer(event); });
  map.addEventListener("pointermove", steer);
  new ResizeObserver(paint).observe(canvas);
  window.addEventListener("recolour", paint);
  window.addEventListener("beforeprint", () => { paintMain(); paintMap(); });
  return (start, end) => {
    marked = [start, end];
    const around = Math.max((end - start) * .35, 20000);
    show(start - around, end + around);
    section.scrollIntoView({ block: "start", behavior: "smooth" });
    canvas.focus({ preventScroll: true });
  };
}
for (const section of document.querySelectorAll(".timeline")) {
  const start = () => timelines[section.id] ||= draw(section, JSON.parse(document.getElementById(section.id + "-data").textContent));
  const part = section.closest("details");
  if (!part || part.open) start(); else part.addEventListener("toggle", start, { once: true });
}
for (const button of document.querySelectorAll("button.jump"))
  button.addEventListener("click", () => timelines[button.dataset.view](Number(button.dataset.from), Number(button.dataset.to)));
