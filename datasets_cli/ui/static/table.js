"use strict";
// The table of trajectories: only the rows that are seen are there, and parts come as they are.
(() => {
  const PART = 200, SPARE = 20, KEPT = 50, SETTLED = 250, TALLEST = 15_000_000;
  const data = JSON.parse(document.getElementById("table-data").textContent);
  const {num_trajectories: count, sort, start} = data.rows;
  const box = document.getElementById("rows"), body = box.querySelector("tbody"), parts = new Map();
  if (!body.rows.length) return;
  const lines = new Map([...body.rows].map((line, n) => [start + n, line])), blank = new Set();
  const height = body.rows[0].getBoundingClientRect().height;
  // Browsers end an element that is too tall: what follows is reached by the links below.
  const total = Math.min(count, Math.floor(TALLEST / height));
  const [above, below] = [document.createElement("div"), document.createElement("div")];
  let settling, first = -1;

  function shown(name, value) {
    const link = {href: `${data.page}/${value}`, textContent: value};
    if (name === "number") return Object.assign(document.createElement("a"), link);
    if (typeof value === "boolean") return value ? "yes" : "no";
    return value === null ? "-" : [value].flat().map((each) => +each?.toPrecision(6)).join(", ");
  }

  function fill(line, value) {
    data.names.forEach((name, n) => (line.cells[n] ?? line.insertCell()).replaceChildren(value(name)));
  }

  async function load(number) {
    parts.set(number, null); // asked for
    if (parts.size > KEPT) parts.delete(parts.keys().next().value);
    const query = {sort, start: number * PART, count: PART};
    try {
      const response = await fetch(`${data.address}?${new URLSearchParams(query)}`);
      const {columns, error} = await response.json();
      if (error) throw new Error(error.message);
      parts.set(number, columns);
      draw(true);
    } catch (error) {
      parts.delete(number); // asked for again when its rows are seen again
      document.getElementById("told").textContent = error.message;
    }
  }

  // A line stays the same as long as it is there, so that what has the focus keeps it.
  function draw(again) {
    const from = Math.max(0, Math.floor(box.scrollTop / height) - SPARE);
    const stop = Math.min(total, from + Math.ceil(box.clientHeight / height) + 2 * SPARE);
    if (from === first && !again) return;
    first = from;
    for (const [row, line] of lines) {
      if (row < from || row >= stop) line.remove(), lines.delete(row), blank.delete(row);
    }
    for (let row = from; row < stop; row++) {
      const part = Math.floor(row / PART), place = row % PART, line = lines.get(row) ?? body.insertRow(row - from);
      if (!parts.has(part)) load(part);
      const found = parts.get(part);
      if (!lines.has(row)) blank.add(row), fill(line, () => "…");
      if (found && blank.delete(row)) fill(line, (name) => shown(name, found[name][place]));
      line.setAttribute("aria-rowindex", row + 2);
      lines.set(row, line);
    }
    above.style.height = `${from * height}px`;
    below.style.height = `${(total - stop) * height}px`;
  }

  body.parentElement.before(above), body.parentElement.after(below);
  document.getElementById("parts").hidden = total === count;
  box.classList.add("scrolled");
  above.style.height = `${start * height}px`;
  below.style.height = `${Math.max(0, total - start - lines.size) * height}px`;
  box.scrollTop = start * height;
  new ResizeObserver(() => draw(true)).observe(box);
  box.onscroll = () => {
    requestAnimationFrame(() => draw(false));
    clearTimeout(settling);
    settling = setTimeout(() => {
      const url = new URL(location);
      url.searchParams.set("start", Math.round(box.scrollTop / height));
      history.replaceState(null, "", url);
    }, SETTLED);
  };
})();
