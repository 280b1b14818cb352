// The catalogue's search: rows are shown and hidden as one types. Without this file the form does it.
"use strict";

const form = document.getElementById("asked");
const rows = [...document.querySelectorAll("#datasets tbody tr")];
const shown = document.getElementById("shown");
const asked = new URLSearchParams(location.search);
// What the server has chosen already stays chosen: only a page of all rows can show all of them.
const isWhole = ["q", "family", "state", "size"].every((name) => !asked.get(name));

function words() {
  return form.elements.q.value.toLowerCase().split(/\s+/).filter(Boolean);
}

function fits(row) {
  const { family, state } = form.elements;
  const id = row.firstElementChild.textContent.toLowerCase();
  const isOf = (select, value) => !select.value || select.value === value;
  const isFamily = isOf(family, row.dataset.family) && isOf(state, row.dataset.state);
  return isFamily && words().every((word) => id.includes(word));
}

function show() {
  let count = 0;
  for (const row of rows) {
    row.hidden = !fits(row);
    count += row.hidden ? 0 : 1;
  }
  shown.textContent = `${count.toLocaleString("en")} ${count === 1 ? "dataset" : "datasets"}`;
}

if (isWhole) {
  form.elements.q.addEventListener("input", show);
  form.elements.family.addEventListener("change", show);
  form.elements.state.addEventListener("change", show);
  show(); // a browser may have kept what was typed
}
for (const name of ["size", "sort", ...(isWhole ? [] : ["family", "state"])]) {
  form.elements[name].addEventListener("change", () => form.requestSubmit());
}
