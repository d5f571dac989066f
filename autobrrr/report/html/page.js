"use strict";
(() => {
  const root = document.documentElement;
  const themes = ["", "dark", "light"], said = { "": "as the system", dark: "dark", light: "light" };
  const button = document.getElementById("theme");
  const recall = () => { try { return localStorage.getItem("autobrrr-theme") || ""; } catch { return ""; } };
  const wear = theme => {
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    button.textContent = "Colours: " + said[theme];
    try { localStorage.setItem("autobrrr-theme", theme); } catch { /* a page without storage forgets */ }
    window.dispatchEvent(new Event("recolour"));
  };
  button.hidden = false;
  button.addEventListener("click", () => wear(themes[(themes.indexOf(root.dataset.theme || "") + 1) % themes.length]));
  if (themes.includes(recall())) wear(recall());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new Event("recolour")));

  const save = document.getElementById("save");
  save.hidden = false;
  save.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([document.getElementById("data").textContent], { type: "application/json" }));
    link.download = save.dataset.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  for (const head of document.querySelectorAll("th[aria-sort]"))
    head.querySelector("button").addEventListener("click", () => {
      const index = head.cellIndex, body = head.closest("table").tBodies[0];
      const upwards = head.getAttribute("aria-sort") === "none" ? !head.classList.contains("n") : head.getAttribute("aria-sort") === "descending";
      const key = row => {
        const cell = row.cells[index];
        return "sort" in cell.dataset ? Number(cell.dataset.sort) : head.classList.contains("n") ? -Infinity : cell.textContent.trim();
      };
      const order = (a, b) => typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b), "en", { numeric: true }) : a - b;
      const rows = [...body.rows].sort((a, b) => order(key(a), key(b)) * (upwards ? 1 : -1));
      for (const other of head.parentElement.cells) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", upwards ? "ascending" : "descending");
      body.append(...rows);
    });
})();
const probe = document.createElement("span");
probe.hidden = true;
document.body.append(probe);
const color = name => {
  probe.style.color = `var(--${name}, var(--other))`;
  return getComputedStyle(probe).color;
};
const time = ns => {
  const abs = Math.abs(ns);
  if (abs >= 1e9) return (ns / 1e9).toPrecision(3) + " s";
  if (abs >= 1e6) return (ns / 1e6).toPrecision(3) + " ms";
  if (abs >= 1e3) return (ns / 1e3).toPrecision(3) + " us";
  return Math.round(ns) + " ns";
};
