"use strict";
// Curves on canvases: one chart a column, or a small one a number where there are many; one cursor for all.
(() => {
  const LEFT = 64, BOTTOM = 18, TOP = 6, RIGHT = 8, HEIGHT = 150, SMALL = 90, TOGETHER = 4, DRAGGED = 6;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (n) => `hsl(${(212 + n * 137.5) % 360} 75% ${dark.matches ? 68 : 38}%)`;
  // What moves a cursor or turns the direction of writing is shown by its number.
  const plain = (text) => text.replace(/[\p{Zl}\p{Zp}]|[^\P{C}\n]/gu,
    (sign) => `\\u${sign.codePointAt(0).toString(16).padStart(4, "0")}`);
  const shown = (x) => (typeof x === "number" ? String(+x.toPrecision(6)) : plain(String(x ?? "NaN")));
  const number = (x) => (typeof x === "string" ? NaN : Number(x ?? NaN)); // "Infinity" has no place

  // Returns the lowest and the highest of curves.
  function rangeOf(curves) {
    let low = Infinity, high = -Infinity;
    for (const value of curves.flatMap(({values}) => values.map(number))) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (low > high) return [0, 1];
    return low < high ? [low, high] : [low - 0.5, high + 0.5];
  }

  // Returns the part of a curve between two steps.
  function cut({name, steps, values}, start, stop) {
    const kept = steps.flatMap((step, n) => (step >= start && step < stop ? [n] : []));
    return {name, steps: kept.map((n) => steps[n]), values: kept.map((n) => values[n])};
  }

  // Charts of columns over the same steps; `options` has length, ends, stepped columns, move and zoom.
  class Charts {
    constructor(place, options) {
      Object.assign(this, {place, options, charts: [], step: 0, drag: null});
      new ResizeObserver(() => this.draw()).observe(place);
      dark.addEventListener("change", () => this.draw());
    }

    // Show curves of some columns from one step up to another.
    show(names, columns, start, stop) {
      Object.assign(this, {start, stop});
      if (!this.charts.length) this.charts = names.flatMap((name) => this.chartsOf(name, columns[name]));
      for (const chart of this.charts) {
        const curves = columns[chart.name].slice(...chart.part).map((curve) => cut(curve, start, stop));
        const [low, high] = rangeOf(curves);
        Object.assign(chart, {curves, low, high});
        const about = `${shown(chart.title)}, steps ${start} to ${stop - 1}, ${curves.length} lines`;
        chart.canvas.setAttribute("aria-label", `${about}, from ${shown(low)} to ${shown(high)}`);
      }
      this.draw();
    }

    // Many lines in one chart hide each other: each gets a small chart.
    chartsOf(name, curves) {
      if (curves.length <= TOGETHER) return [this.chart(name, name, [0, curves.length], HEIGHT, this.place)];
      const place = Object.assign(document.createElement("div"), {className: "small"});
      this.place.append(place);
      return curves.map((curve, n) => this.chart(name, curve.name, [n, n + 1], SMALL, place));
    }

    chart(name, title, part, tall, among) {
      const tags = ["figure", "figcaption", "canvas", "div", "div"];
      const [figure, caption, canvas, cursor, dragged] = tags.map((tag) => document.createElement(tag));
      caption.textContent = shown(title);
      [cursor.className, dragged.className] = ["cursor", "dragged"];
      const place = {bottom: `${BOTTOM}px`, height: `${tall - BOTTOM}px`};
      for (const each of [cursor, dragged]) Object.assign(each.style, place);
      figure.append(caption, canvas, cursor, dragged);
      canvas.setAttribute("role", "img");
      canvas.style.height = `${tall}px`;
      canvas.onpointerdown = (event) => {
        canvas.setPointerCapture(event.pointerId);
        this.set({drag: {chart, from: event.offsetX, to: event.offsetX}});
      };
      canvas.onpointermove = ({offsetX: to}) => this.drag && this.set({drag: {...this.drag, to}});
      canvas.onpointerup = () => this.release();
      canvas.onpointercancel = () => this.set({drag: null});
      canvas.ondblclick = () => this.options.zoom(0, this.options.length);
      among.append(figure);
      const chart = {name, title, part, tall, figure, canvas, cursor, dragged};
      return chart;
    }

    // Draw everything anew, as after a change of size or of colours.
    draw() {
      for (const chart of this.charts) chart.wide = chart.canvas.clientWidth;
      for (const chart of this.charts) this.drawChart(chart);
      this.set({});
    }

    x(step, {wide}) {
      return LEFT + (step - this.start) / Math.max(1, this.stop - 1 - this.start) * (wide - LEFT - RIGHT);
    }

    drawChart(chart) {
      const {name, figure, canvas, curves, low, high, tall, wide} = chart;
      const ratio = devicePixelRatio || 1, pen = canvas.getContext("2d");
      canvas.width = Math.round(wide * ratio);
      canvas.height = Math.round(tall * ratio);
      const x = (step) => this.x(step, chart);
      const y = (value) => TOP + (high - value) / (high - low) * (tall - TOP - BOTTOM);
      pen.scale(ratio, ratio);
      pen.font = "11px sans-serif";
      pen.fillStyle = pen.strokeStyle = getComputedStyle(figure).color;
      pen.textBaseline = "middle";
      pen.textAlign = "right";
      for (const value of tall === SMALL ? [low, high] : [low, (low + high) / 2, high]) {
        pen.fillText(+value.toPrecision(4), LEFT - 6, Math.max(y(value), 8));
        pen.globalAlpha = 0.2;
        pen.fillRect(LEFT, y(value), wide - LEFT - RIGHT, 1);
        pen.globalAlpha = 1;
      }
      const {ends, length} = this.options, isWhole = this.stop === length;
      pen.fillText([...(isWhole ? ends : []), this.stop - 1].join(" "), x(this.stop - 1), tall - BOTTOM / 2);
      pen.textAlign = "left";
      pen.fillText(this.start, x(this.start), tall - BOTTOM / 2);
      // Where the trajectory ended; a dashed line is one that was cut off.
      pen.setLineDash(ends.includes("terminated") ? [] : [4, 3]);
      if (isWhole && ends.length) pen.strokeRect(x(this.stop - 1), TOP, 0, tall - TOP - BOTTOM);
      pen.setLineDash([]);
      const isStepped = this.options.stepped.includes(name);
      curves.forEach((curve, n) => this.drawLine(pen, curve, x, y, colour(n), isStepped));
    }

    // A categorical value holds until the next step: its line has no slopes.
    drawLine(pen, {steps, values}, toX, y, style, isStepped) {
      const areFar = steps.length < (toX(this.stop - 1) - LEFT) / 6;
      pen.strokeStyle = pen.fillStyle = style;
      pen.lineWidth = 1.25;
      pen.beginPath();
      for (let i = 0, isOpen = false; i < steps.length; i++) {
        const x = toX(steps[i]), value = number(values[i]), isKnown = !Number.isNaN(value);
        const isAlone = !isOpen && Number.isNaN(number(values[i + 1]));
        if (isKnown && isOpen && isStepped) pen.lineTo(x, y(number(values[i - 1])));
        if (isKnown) pen[isOpen ? "lineTo" : "moveTo"](x, y(value));
        if (isKnown && (isAlone || areFar)) pen.fillRect(x - 1.5, y(value) - 1.5, 3, 3);
        isOpen = isKnown;
      }
      pen.stroke();
    }

    // Set the step of the cursor, or what is dragged: they lie over the charts, which stay as they are.
    set(changes) {
      Object.assign(this, changes);
      const {from, to} = this.drag ?? {from: 0, to: 0};
      const scale = (x, {wide}) => LEFT + (x - LEFT) * (wide - LEFT - RIGHT) / ((this.drag?.chart.wide ?? wide) - LEFT - RIGHT);
      for (const chart of this.charts) {
        const {cursor, dragged} = chart;
        cursor.hidden = this.step < this.start || this.step >= this.stop;
        cursor.style.transform = `translateX(${this.x(this.step, chart) - 0.5}px)`;
        dragged.style.transform = `translateX(${scale(Math.min(from, to), chart)}px)`;
        dragged.style.width = `${Math.abs(scale(to, chart) - scale(from, chart))}px`;
      }
    }

    release() {
      if (!this.drag) return;
      const {from, to, chart} = this.drag, steps = this.stop - 1 - this.start;
      const [first, last] = [from, to].sort((a, b) => a - b).map((x) =>
        this.start + Math.round(Math.min(Math.max((x - LEFT) / (chart.wide - LEFT - RIGHT), 0), 1) * steps));
      this.set({drag: null});
      if (Math.abs(to - from) < DRAGGED) this.options.move(first);
      else if (last > first) this.options.zoom(first, last + 1);
    }
  }

  globalThis.rlds = {Charts, shown};
})();
