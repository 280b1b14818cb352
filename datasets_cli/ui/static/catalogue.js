// The catalogue's search: rows are shown and hidden as one types. Without this file the form does it.
"use strict";

const fields = document.getElementById("query").elements;
const rows = [...document.querySelectorAll("#datasets tbody tr")];
const shown = document.getElementById("shown");
const query = new URLSearchParams(location.search);
const UNITS = { MB: 1e6, GB: 1e9 };

function most() {
  const size = /^(\d+)(MB|GB)$/.exec(fields.size.value);
  return size ? Number(size[1]) * UNITS[size[2]] : null;
}

function fits(row, words, bytes) {
  const { family, state, size } = row.dataset;
  const id = row.firstElementChild.textContent.toLowerCase();
  return (
    (!fields.family.value || fields.family.value === family) &&
    (!fields.state.value || fields.state.value === state) &&
    (bytes === null || (size !== "" && Number(size) <= bytes)) &&
    words.every((word) => id.includes(word))
  );
}

function show() {
  const words = fields.q.value.toLowerCase().split(/\s+/).filter(Boolean);
  const bytes = most();
  for (const row of rows) row.hidden = !fits(row, words, bytes);
  const count = rows.filter((row) => !row.hidden).length;
  shown.textContent = `${count.toLocaleString("en")} ${count === 1 ? "dataset" : "datasets"}`;
}

// Only a page of all rows can show all of them: what the server has chosen stays chosen.
if (["q", "family", "state", "size"].every((name) => !query.get(name))) {
  fields.q.addEventListener("input", show);
  for (const name of ["family", "state", "size"]) fields[name].addEventListener("change", show);
  show(); // a browser may have kept what was typed
}
