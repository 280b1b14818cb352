"use strict";
// One trajectory: a step that curves, frame and values share, moved by keys, clicks or playing.
(() => {
  const RATE = 30, AHEAD = 60, AT_ONCE = 6, SETTLED = 250, PARTS_KEPT = 40;
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("page-data").textContent);
  const {length} = data.curves, last = length - 1, online = Boolean(data.address);
  const [range, play, readout, canvas] = ["step", "play", "readout", "frame"].map(byId);
  const rows = byId("values").tBodies[0];
  const asked = Math.floor(Number(new URL(location).searchParams.get("t"))) || 0;
  const step = online ? data.step : Math.min(Math.max(asked, 0), last); // files have no server to read it
  const state = {step, start: data.curves.start, stop: data.curves.stop, column: data.frames[0]};
  const charts = new rlds.Charts(byId("curves"), {length, ends: data.ends, stepped: data.stepped, move: go, zoom});
  let playing = null, settling = 0, loading = 0;

  async function answer(part, query) {
    const response = await fetch(`${data.address}/${part}?${new URLSearchParams(query)}`);
    const document = await response.json();
    if (!response.ok) throw new Error(document.error.message);
    return document;
  }

  const told = (error) => (stop(), (readout.textContent = rlds.shown(error.message)));

  async function zoom(start, stop) {
    const asked = {start: Math.max(0, start), stop: Math.min(stop, length)};
    Object.assign(state, asked);
    try {
      const query = {...asked, columns: data.columns.join()};
      const {columns} = online ? await answer("curves", query) : data.curves;
      if (asked.start !== state.start || asked.stop !== state.stop) return; // another was asked for
      charts.show(data.columns, columns, asked.start, asked.stop);
    } catch (error) {
      told(error);
    }
    settle();
  }

  // Values of steps come in parts; of one that was asked for there is a null.
  const parts = new Map([[Math.floor(data.step / data.part), data.steps]]);

  async function loadPart(step) {
    const number = Math.floor(step / data.part);
    if (parts.has(number) || !online || step > last) return;
    parts.set(number, null);
    if (parts.size > PARTS_KEPT) parts.delete(parts.keys().next().value);
    try {
      parts.set(number, await answer("steps", {start: number * data.part, count: data.part}));
      showValues();
    } catch (error) {
      parts.delete(number);
      told(error);
    }
  }

  function showValues() {
    const part = parts.get(Math.floor(state.step / data.part)), place = state.step - part?.first;
    const columns = place < part?.trajectories.length ? part.columns : [];
    columns.forEach(({key, values}, n) => {
      const row = rows.rows[n] ?? rows.insertRow();
      const [name, value] = row.cells.length ? row.cells : ["th", "td"].map((tag) => document.createElement(tag));
      row.append(name, value);
      name.textContent = rlds.shown(key.join("."));
      value.textContent = [values[place]].flat(Infinity).map(rlds.shown).join(", ");
    });
    rows.parentElement.hidden = !columns.length;
  }

  // Frames are loaded before they are shown; of one that is on its way there is a null.
  const images = new Map();
  const frameOf = (step) => step - step % data.stride;

  function load() {
    const end = Math.min(state.step + (playing ? AHEAD : 3), length), {column} = state;
    for (let step = state.step; step < end && loading < AT_ONCE; step++) {
      if (images.has(step) || !canvas) continue;
      const image = new Image();
      image.src = online
        ? `${data.address}/frames/${step}.png?column=${encodeURIComponent(column)}`
        : `${data.folder}/${frameOf(step)}.png`;
      images.set(step, null);
      loading++;
      image.decode().then(() => image, () => "missing").then((loaded) => {
        loading--;
        if (column === state.column) images.set(step, loaded);
        if (step === state.step) showFrame();
        load();
      });
    }
    for (const step of images.keys()) {
      if (images.size > 4 * AHEAD && (step < state.step || step > end)) images.delete(step);
    }
  }

  function showFrame() {
    const image = images.get(state.step);
    if (!canvas || !image) return;
    canvas.hidden = image === "missing";
    canvas.setAttribute("aria-label", `Frame of step ${frameOf(state.step)}`);
    if (canvas.hidden) return;
    const {naturalWidth: width, naturalHeight: height} = image;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, {width, height});
    canvas.getContext("2d").drawImage(image, 0, 0);
  }

  function go(step) {
    state.step = range.value = Math.min(Math.max(step, 0), last);
    const ends = state.step === last ? data.ends : [];
    readout.textContent = [`Step ${state.step} of ${length}`, ...ends].join(", ");
    charts.set({step: state.step});
    load();
    showFrame();
    showValues();
    loadPart(state.step);
    if (playing) loadPart(state.step + data.part);
    else settle();
  }

  // Browsers refuse an address that changes with every step.
  function settle() {
    clearTimeout(settling);
    settling = online && setTimeout(() => {
      const url = new URL(location), {step, start, stop} = state;
      for (const [name, value, usual] of [["t", step], ["start", start, 0], ["stop", stop, length]]) {
        if (value === usual) url.searchParams.delete(name);
        else url.searchParams.set(name, value);
      }
      history.replaceState(null, "", url);
    }, SETTLED);
  }

  function start() {
    if (state.step === last) go(0);
    pressed({from: state.step, began: performance.now()});
    requestAnimationFrame(tick);
  }

  function stop() {
    pressed(null);
    settle();
  }

  function pressed(now) {
    playing = now;
    readout.setAttribute("aria-live", playing ? "off" : "polite");
    play.textContent = playing ? "Pause" : "Play";
    play.setAttribute("aria-pressed", Boolean(playing));
  }

  function tick(now) {
    if (!playing) return;
    const step = Math.min(playing.from + Math.floor((now - playing.began) * RATE / 1000), last);
    // A frame that is late is waited for: none is left out.
    if (canvas && !images.get(step)) playing = {from: state.step, began: now};
    else if (step > state.step) go(step);
    load();
    if (state.step === last) stop();
    else requestAnimationFrame(tick);
  }

  const keys = {
    ArrowLeft: () => go(state.step - 1), ArrowRight: () => go(state.step + 1),
    Home: () => go(0), End: () => go(last), " ": () => (playing ? stop() : start()),
    "+": () => zoom(...[-1, 1].map((n) => state.step + n * Math.ceil((state.stop - state.start) / 4))),
    0: () => zoom(0, length),
  };
  const own = {" ": "button, a, input, select, summary"};
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || !(event.key in keys)) return;
    if (event.target.closest(own[event.key] ?? "input[type=range], select")) return;
    event.preventDefault();
    keys[event.key]();
  });
  const clicks = {play: " ", back: "ArrowLeft", on: "ArrowRight", closer: "+", whole: "0"};
  for (const [id, key] of Object.entries(clicks)) byId(id).onclick = keys[key];
  range.oninput = () => go(Number(range.value));
  byId("frames")?.addEventListener("change", (event) => {
    state.column = event.target.value;
    images.clear();
    load();
  });
  byId("player").hidden = false;
  charts.show(data.columns, data.curves.columns, state.start, state.stop);
  go(state.step);
})();
