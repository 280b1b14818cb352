// The search follows what is typed: the form's answer replaces the list. Without this file its button does.
"use strict";

const SETTLED = 200; // milliseconds
const form = document.getElementById("query");
let settling, latest = 0;

async function show() {
  clearTimeout(settling);
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
  const number = ++latest, address = query.size ? `/?${query}` : "/";
  const response = await fetch(address);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (number !== latest || !response.ok) return; // a newer search is running
  document.getElementById("found").replaceWith(page.getElementById("found"));
  document.getElementById("shown").textContent = page.getElementById("shown").textContent;
  history.replaceState(null, "", address);
}

form.addEventListener("input", () => {
  clearTimeout(settling);
  settling = setTimeout(show, SETTLED);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  show();
});
