"use strict";
// The table of trajectories: only the rows that are seen are there, and parts come as they are.
(() => {
  const PART = 200, SPARE = 20, KEPT = 50, SETTLED = 250, TALLEST = 15_000_000;
  const data = JSON.parse(document.getElementById("table-data").textContent);
  const {num_trajectories: count, sort, descending} = data.rows;
  const box = document.getElementById("rows"), body = box.querySelector("tbody"), parts = new Map();
  if (!body.rows.length) return;
  const height = body.rows[0].getBoundingClientRect().height;
  // Browsers end an element that is too tall: what follows is reached by the links below.
  const total = Math.min(count, Math.floor(TALLEST / height));
  const [above, below] = [document.createElement("div"), document.createElement("div")];
  let settling = 0, first = -1;
  box.prepend(above);
  box.append(below);

  function shown(name, value) {
    if (name === "number") {
      return Object.assign(document.createElement("a"), {href: `${data.page}/${value}`, textContent: value});
    }
    if (typeof value === "boolean") return value ? "yes" : "no";
    return value === null ? "-" : [value].flat().map((each) => +each?.toPrecision(6)).join(", ");
  }

  async function load(number) {
    parts.set(number, null); // asked for
    if (parts.size > KEPT) parts.delete(parts.keys().next().value);
    const query = {sort, start: number * PART, count: PART, ...(descending ? {descending: 1} : {})};
    try {
      const response = await fetch(`${data.address}?${new URLSearchParams(query)}`);
      parts.set(number, (await response.json()).columns);
      draw(true);
    } catch {
      parts.delete(number); // asked for again when its rows are seen again
    }
  }

  function draw(again) {
    const from = Math.max(0, Math.floor(box.scrollTop / height) - SPARE);
    const stop = Math.min(total, from + Math.ceil(box.clientHeight / height) + 2 * SPARE);
    if (from === first && !again) return;
    first = from;
    for (let row = from; row < stop; row++) {
      const line = body.rows[row - from] ?? body.insertRow(), part = Math.floor(row / PART);
      if (!parts.has(part)) load(part);
      const found = parts.get(part);
      line.setAttribute("aria-rowindex", row + 2);
      data.names.forEach((name, n) => {
        const cell = line.cells[n] ?? line.insertCell();
        cell.replaceChildren(found ? shown(name, found[name][row % PART]) : "…");
      });
    }
    while (body.rows.length > stop - from) body.deleteRow(-1);
    above.style.height = `${from * height}px`;
    below.style.height = `${(total - stop) * height}px`;
  }

  box.onscroll = () => {
    requestAnimationFrame(() => draw(false));
    clearTimeout(settling);
    settling = setTimeout(() => {
      const url = new URL(location);
      url.searchParams.set("start", Math.round(box.scrollTop / height));
      history.replaceState(null, "", url);
    }, SETTLED);
  };
  document.getElementById("parts").hidden = total === count;
  box.classList.add("scrolled");
  draw(true);
  box.scrollTop = data.rows.start * height;
  new ResizeObserver(() => draw(true)).observe(box);
})();
