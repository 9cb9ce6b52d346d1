"use strict";
(() => {
  const content = JSON.parse(document.getElementById("content").textContent);
  const tip = document.getElementById("tip");
  const views = [];
  const hidden = new Set();

  // --- the legend: one for the whole page, also for the rows of tables; kept when the page reloads ---
  const buttons = [...document.querySelectorAll(".legend [data-series]")];
  const remember = {
    key: "hidden:" + location.pathname,
    load() { try { return JSON.parse(sessionStorage.getItem(this.key)) || []; } catch { return []; } },
    save() { try { sessionStorage.setItem(this.key, JSON.stringify([...hidden])); } catch { /* private mode */ } },
  };
  const known = new Set(buttons.map((button) => button.dataset.series));
  remember.load().filter((name) => known.has(name)).forEach((name) => hidden.add(name));

  function apply() {
    for (const button of buttons) button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.series)));
    for (const row of document.querySelectorAll("tr[data-series]")) row.hidden = hidden.has(row.dataset.series);
    for (const view of views) view.signal("hidden", [...hidden]).runAsync();
    remember.save();
  }
  for (const button of buttons) {
    button.addEventListener("click", (event) => {
      const name = button.dataset.series;
      if (event.shiftKey) { hidden.clear(); known.forEach((each) => each !== name && hidden.add(each)); }
      else if (!hidden.delete(name)) hidden.add(name);
      apply();
    });
  }
  document.querySelector("[data-all]")?.addEventListener("click", () => { hidden.clear(); apply(); });

  // --- tables: a click on a title sorts by it, another one the other way round ---
  for (const table of document.querySelectorAll("table")) {
    const titles = [...table.querySelectorAll("th")];
    titles.forEach((title, column) => title.querySelector("button")?.addEventListener("click", () => {
      const numeric = title.classList.contains("number");
      const first = numeric ? "descending" : "ascending";
      const now = title.getAttribute("aria-sort");
      const order = now === null ? first : now === "ascending" ? "descending" : "ascending";
      titles.forEach((each) => each.removeAttribute("aria-sort"));
      title.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const value = (row) => {
        const cell = row.cells[column];
        if (!numeric) return cell.textContent;
        return "value" in cell.dataset ? Number(cell.dataset.value.replace("inf", "Infinity")) : NaN;
      };
      const compare = (a, b) => {
        if (!numeric) return sign * a.localeCompare(b, undefined, { numeric: true });
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b); // unknown ones always last
        return a === b ? 0 : sign * (a - b);
      };
      const body = table.tBodies[0];
      [...body.rows].sort((a, b) => compare(value(a), value(b))).forEach((row) => body.append(row));
    }));
  }
  for (const row of document.querySelectorAll("tr[data-series]")) {
    const name = row.dataset.series;
    const cell = [...row.cells].find((each) => each.textContent === name);
    if (cell) cell.prepend(dot(content.colours[name]));
  }
  function dot(colour) {
    const mark = document.createElement("span");
    mark.className = "dot";
    mark.style.background = colour || "gray";
    return mark;
  }

  // --- charts ---
  function rows(columns) {
    const names = Object.keys(columns);
    return columns[names[0]].map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
  }
  const numeral = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const show = (value) => (value === null || value === undefined ? "–" : numeral.format(value));

  function nearest(points, x) {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle].x < x) low = middle; else high = middle;
    }
    return Math.abs(points[low].x - x) <= Math.abs(points[high].x - x) ? points[low] : points[high];
  }

  /** Values of all visible curves at the pointer's place, best first */
  function hover(holder, view, panel, data) {
    const groups = new Map();
    for (const row of data) {
      const key = JSON.stringify([row.series, row.line]);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(row);
    }
    const steps = [...new Set(data.map((row) => row.x))].sort((a, b) => a - b);
    const reach = steps.length > 1 ? (steps[steps.length - 1] - steps[0]) / 60 : Infinity;
    const guide = document.createElement("div");
    guide.className = "guide";
    guide.hidden = true;
    holder.append(guide);
    const leave = () => { tip.hidden = guide.hidden = true; };
    holder.addEventListener("pointerleave", leave);
    const look = (event) => {
      const box = holder.querySelector("svg.marks").getBoundingClientRect();
      const left = view.origin()[0] + view.padding().left;
      const place = event.clientX - box.left - left;
      if (place < 0 || place > view.width()) return leave();
      const x = view.scale("x").invert(place);
      const found = [...groups.values()].map((points) => nearest(points, x))
        .filter((row) => !hidden.has(row.series) && Math.abs(row.x - x) <= reach && row.y !== null)
        .sort((a, b) => b.y - a.y).slice(0, 16);
      if (!found.length) return leave();
      const table = document.createElement("table");
      for (const row of found) {
        const line = table.insertRow();
        line.insertCell().append(dot(content.colours[row.series]), row.line ? `${row.series}, ${row.line}` : row.series);
        line.insertCell().textContent = show(row.y);
        const more = row.low === undefined ? "" : `${show(row.low)} to ${show(row.high)}`;
        line.insertCell().textContent = row.n === undefined ? more : `${more} (${row.n} run${row.n === 1 ? "" : "s"})`;
      }
      const title = document.createElement("strong");
      title.textContent = `${show(found[0].x)} ${panel.x}`;
      tip.replaceChildren(title, table);
      tip.hidden = guide.hidden = false;
      const shift = view.scale("x")(found[0].x) + left + box.left - holder.getBoundingClientRect().left;
      guide.style.left = `${shift}px`;
      guide.style.height = `${view.height()}px`;
      const beside = event.clientX + 16 + tip.offsetWidth < innerWidth;
      tip.style.left = `${beside ? event.clientX + 16 : Math.max(4, event.clientX - 16 - tip.offsetWidth)}px`;
      tip.style.top = `${Math.max(4, Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 4))}px`;
    };
    holder.addEventListener("pointermove", look);
    holder.addEventListener("pointerdown", look); // a finger does not hover
  }

  async function draw(holder) {
    const key = holder.dataset.panel;
    const panel = content.panels[key];
    const data = rows(panel.data);
    const result = await vegaEmbed(holder, { ...panel.spec, datasets: { data } }, {
      renderer: "svg",
      logLevel: 1, // errors; a chart whose algorithms are all hidden is none
      config: content.config,
      ast: true, // expressions are interpreted: the page's policy forbids code made of text
      actions: { export: true, source: false, compiled: false, editor: false },
      downloadFileName: key,
    });
    views.push(result.view);
    if (hidden.size) await result.view.signal("hidden", [...hidden]).runAsync();
    if (panel.kind === "curves") hover(holder, result.view, panel, data);
  }

  async function main() {
    apply();
    for (const holder of document.querySelectorAll("[data-panel]")) {
      try { await draw(holder); } catch (error) {
        holder.textContent = `This chart could not be drawn: ${error.message}`;
        console.error(error);
      }
    }
    document.documentElement.dataset.drawn = String(views.length);
  }
  main();

  // --- while runs go on ---
  const version = document.body.dataset.version;
  if (version) {
    setInterval(async () => {
      try {
        const answer = await fetch("version", { cache: "no-store" });
        if (answer.ok && (await answer.text()) !== version) location.reload();
      } catch { /* the server has ended: the page stays as it is */ }
    }, 2000);
  }
})();
