// The panel: draws telemetry (see telemetry.py) in the browser, so that it can be frozen, cleared and looked at while
// the kernel is busy. Text from the kernel is only ever set as text.

const VERSION = 1;
// In the order of categories.py: from what stays to what comes and goes, so that the figure is calm below.
const CATEGORIES = ["parameters", "optimizer_state", "workspace", "gradients", "activations", "inputs", "other"];
// The places in a row of history: the time, the categories, and what the allocator has reserved.
const RESERVED = CATEGORIES.length + 1;
const SPOKEN = { optimizer_state: "optimizer state" };
const ROWS = 600;
const SVG = "http://www.w3.org/2000/svg";
const TABS = ["Memory", "Transfers", "Collectives", "Timeline", "Advice"];
const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];

// ---------------------------------------------------------------- words

function figures(value) {
  return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = bytes;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 ? (bytes ? `${bytes} B` : "0") : `${figures(value)} ${units[unit]}`;
}

function exact(bytes) {
  return `${bytes.toLocaleString("en")} bytes`;
}

function duration(ns) {
  for (const [factor, unit] of TIMES) {
    if (ns >= factor * 0.9995) return `${figures(ns / factor)} ${unit}`;
  }
  return ns ? `${Math.round(ns)} ns` : "0";
}

// The nanoseconds of the unit in which an axis of that length is marked, and its name.
function axisUnit(ns) {
  return TIMES.find(([factor]) => ns >= factor) || [1, "ns"];
}

function rate(bytesPerSecond) {
  if (!bytesPerSecond) return "";
  return bytesPerSecond < 1e8 ? `${figures(bytesPerSecond / 1e6)} MB/s` : `${figures(bytesPerSecond / 1e9)} GB/s`;
}

function spoken(category) {
  return SPOKEN[category] || category;
}

// ---------------------------------------------------------------- making elements

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== 0));
  return element;
}

function s(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function table(caption, heads, rows, numbers) {
  const side = (place) => (numbers.includes(place) ? "fg-number" : "");
  return h("table", { class: "fg-table" },
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, ...heads.map((head, place) => h("th", { scope: "col", class: side(place) }, head)))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell, place) =>
      cell instanceof Node ? h("td", { class: side(place) }, cell)
        : typeof cell === "object" ? h("td", { class: `${side(place)} ${cell.class || ""}`, title: cell.title,
          style: cell.style }, cell.text)
          : h(place ? "td" : "th", place ? { class: side(place) } : { scope: "row" }, cell))))));
}

// ---------------------------------------------------------------- what is known

class Model {
  constructor() {
    this.epoch = -1;
    this.seq = 0;
    this.reset();
  }

  reset() {
    this.devices = new Map();
    this.history = new Map();
    this.steps = [];
    this.timeline = null;
    this.collectives = [];
    this.advice = [];
    this.latest = null;
    this.cleared = -1;
  }

  // Take in a message; whether one in between was missed.
  take(message) {
    const whole = message.kind === "state";
    const missed = !whole && (message.epoch !== this.epoch || message.seq !== this.seq + 1);
    if (message.epoch !== this.epoch) this.reset();
    else if (whole) {
      this.history = new Map();
      this.steps = [];
    }
    this.epoch = message.epoch;
    this.seq = message.seq;
    for (const device of message.devices) this.devices.set(device.slot, device);
    for (const [slot, rows] of Object.entries(message.history)) {
      const known = this.history.get(+slot) || [];
      const places = ["now_ns", ...CATEGORIES, "reserved"].map((name) => message.columns.indexOf(name));
      for (const row of rows.map((told) => places.map((place) => told[place]))) {
        if (known.length && known[known.length - 1][0] === row[0]) known.pop();
        known.push(row);
      }
      this.history.set(+slot, known.length > ROWS * 2 ? known.filter((_, i) => i % 2 || i > ROWS) : known);
    }
    this.steps.push(...message.steps);
    if (this.steps.length > 400) this.steps = this.steps.slice(-400);
    if (message.timeline) this.timeline = message.timeline;
    if (message.collectives) this.collectives = message.collectives;
    if (message.advice) this.advice = message.advice;
    this.latest = message;
    return missed;
  }

  rows(slot) {
    return (this.history.get(slot) || []).filter((row) => row[0] >= this.cleared);
  }

  clear() {
    this.cleared = this.latest ? this.latest.now_ns : -1;
    this.timeline = null;
  }
}

// ---------------------------------------------------------------- the panel

class Panel {
  constructor(model, element) {
    this.model = model;
    this.data = new Model();
    this.frozen = false;
    this.device = null;
    this.tab = "Memory";
    this.cursor = null;
    this.frames = 0;
    this.waiting = false;
    this.theme = model.get("theme") || "auto";
    this.root = h("section", { class: "fg-panel", "aria-label": "Simulated GPUs" });
    element.append(this.root);
    this.build();
    this.themed();
    this.observer = new MutationObserver(() => this.themed());
    this.observer.observe(document.body, { attributes: true });
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.root);
  }

  close() {
    this.observer.disconnect();
    this.resized.disconnect();
  }

  take(message) {
    if (message.version !== VERSION) {
      this.say(`This panel understands telemetry of version ${VERSION}; the kernel tells version ${message.version}.`);
      return false;
    }
    const missed = this.data.take(message);
    if (!this.frozen) this.draw();
    return missed;
  }

  build() {
    this.status = h("span", { class: "fg-status", role: "status" });
    this.clock = h("span", { class: "fg-clock", title: "simulated time since the GPUs were enabled" });
    this.freeze = h("button", { type: "button", "aria-pressed": "false", onclick: () => this.setFrozen(!this.frozen),
      title: "Stop drawing; the program goes on" }, "Freeze");
    const clear = h("button", { type: "button", title: "Forget what was before now",
      onclick: () => { this.data.clear(); this.cursor = null; this.draw(true); } }, "Clear");
    this.choice = h("select", { "aria-label": "Device", onchange: () => {
      this.device = +this.choice.value;
      this.draw(true);
    } });
    const theme = h("select", { "aria-label": "Theme", onchange: (event) => {
      this.theme = event.target.value;
      this.themed();
    } }, ...["auto", "light", "dark"].map((name) => h("option", { value: name }, name)));
    theme.value = this.theme;
    this.cards = h("div", { class: "fg-cards" });
    this.bar = h("div", { class: "fg-tabs", role: "tablist", "aria-label": "What to show" });
    this.name = `fg${Math.random().toString(36).slice(2, 8)}`;
    for (const tab of TABS) {
      this.bar.append(h("button", { type: "button", role: "tab", id: `${this.name}-${tab}`, "data-tab": tab,
        "aria-controls": `${this.name}-body`, onclick: () => this.choose(tab) }, tab));
    }
    this.bar.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const shown = TABS.filter((tab) => !this.bar.querySelector(`[data-tab=${tab}]`).hidden);
      this.choose(shown[(shown.indexOf(this.tab) + step + shown.length) % shown.length], true);
      event.preventDefault();
    });
    this.body = h("div", { class: "fg-body", role: "tabpanel", id: `${this.name}-body`, tabindex: "0" });
    this.tip = h("div", { class: "fg-tip", "aria-hidden": "true", hidden: "" });
    this.root.append(
      h("header", { class: "fg-head" }, h("strong", { class: "fg-title" }, "Simulated GPUs"), this.status, this.clock,
        h("span", { class: "fg-gap" }), this.choice, this.freeze, clear, theme),
      this.cards, this.bar, this.body, this.tip);
    this.choose("Memory");
  }

  choose(tab, focus) {
    this.tab = tab;
    this.cursor = null;
    for (const button of this.bar.children) {
      const chosen = button.dataset.tab === tab;
      button.setAttribute("aria-selected", chosen);
      button.tabIndex = chosen ? 0 : -1;
      if (chosen && focus) button.focus();
      if (chosen) this.body.setAttribute("aria-labelledby", button.id);
    }
    this.body.replaceChildren();
    this.figure = null;
    this.draw(true);
  }

  setFrozen(frozen) {
    this.frozen = frozen;
    this.freeze.setAttribute("aria-pressed", frozen);
    this.freeze.textContent = frozen ? "Go on" : "Freeze";
    this.draw(true);
  }

  themed() {
    const body = document.body;
    const dark = this.theme === "dark" || (this.theme === "auto" && (
      body.dataset.jpThemeLight === "false" || body.classList.contains("vscode-dark")
      || body.classList.contains("theme-dark")
      || (body.dataset.jpThemeLight === undefined && !body.classList.contains("vscode-light")
        && matchMedia("(prefers-color-scheme: dark)").matches)));
    this.root.dataset.theme = dark ? "dark" : "light";
  }

  say(text) {
    this.body.replaceChildren(h("p", { class: "fg-note" }, text));
    this.figure = null;
  }

  // Draw soon, once for however many messages came meanwhile.
  draw(forced) {
    this.forced = this.forced || forced;
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.frozen && !this.forced) return;
      this.forced = false;
      this.paint();
    });
  }

  paint() {
    const { latest, devices } = this.data;
    const shown = [...devices.values()].filter((device) => device.index >= 0);
    if (!latest || (!latest.enabled && !shown.length)) {
      this.status.textContent = latest ? "off" : "waiting for the kernel";
      this.cards.replaceChildren();
      this.say(latest ? latest.note : "The kernel has not said anything yet. A busy cell may hold it up; it will.");
      return;
    }
    this.status.textContent = this.frozen ? "frozen" : !latest.enabled ? "switched off" : latest.busy ? "running" : "idle";
    this.root.dataset.state = this.frozen ? "frozen" : latest.busy && latest.enabled ? "running" : "idle";
    const done = Math.max(latest.now_ns, ...shown.map((device) => device.time.done_ns));
    this.clock.textContent = `${latest.spec} · ${duration(done)} simulated`;
    if (!devices.has(this.device)) this.device = shown[0].slot;
    this.paintChoice(shown);
    this.paintCards(shown);
    this.bar.querySelector("[data-tab=Advice]").hidden = !this.data.advice.length;
    this[`paint${this.tab}`]();
    this.frames += 1;
    this.root.dataset.frames = this.frames;
  }

  paintChoice(shown) {
    const names = shown.map((device) => `cuda:${device.index}`);
    if (names.join() === this.names) return;
    this.names = names.join();
    this.choice.replaceChildren(...shown.map((device, place) => h("option", { value: device.slot }, names[place])));
    this.choice.value = this.device;
    this.choice.hidden = shown.length < 2;
  }

  paintCards(shown) {
    if (this.cards.children.length !== shown.length || this.cards.dataset.epoch !== String(this.data.epoch)) {
      this.cards.dataset.epoch = this.data.epoch;
      this.cards.replaceChildren(...shown.map((device) => this.makeCard(device)));
    }
    shown.forEach((device, place) => this.paintCard(this.cards.children[place], device));
  }

  makeCard(device) {
    const card = h("button", { type: "button", class: "fg-card", onclick: () => {
      this.device = device.slot;
      this.choice.value = device.slot;
      this.draw(true);
    } });
    card.append(
      h("span", { class: "fg-card-name" }, h("b", {}, `cuda:${device.index}`), ` ${device.name}`),
      h("span", { class: "fg-meter" }, ...CATEGORIES.map((name) => h("i", { class: `fg-fill fg-${name}` })),
        h("i", { class: "fg-reserved-part" }), h("i", { class: "fg-peak" })),
      h("span", { class: "fg-card-memory" }), h("span", { class: "fg-card-work" }), h("span", { class: "fg-error" }));
    return card;
  }

  paintCard(card, device) {
    const { memory, counters } = device;
    const rows = this.data.history.get(device.slot) || [];
    // Before any row came, all that is allocated is "other".
    const row = rows[rows.length - 1] || [0, ...CATEGORIES.map((name) => (name === "other" ? memory.allocated : 0)),
      memory.reserved];
    const [meter, words, work, error] = [1, 2, 3, 4].map((place) => card.children[place]);
    const room = memory.total - memory.context;
    const part = (bytes) => `${Math.min((100 * bytes) / room, 100)}%`;
    CATEGORIES.forEach((_, place) => { meter.children[place].style.width = part(row[place + 1]); });
    const [unused, peak] = [...meter.children].slice(CATEGORIES.length);
    unused.style.width = part(Math.max(memory.reserved - memory.allocated, 0));
    peak.style.left = part(memory.peak_allocated);
    meter.title = `allocated ${exact(memory.allocated)}, reserved ${exact(memory.reserved)}, `
      + `peak ${exact(memory.peak_allocated)}, of ${exact(room)}: the card's ${exact(memory.total)} less CUDA's context`;
    words.textContent = `${size(memory.allocated)} of ${size(room)}\nreserved ${size(memory.reserved)}`
      + ` · peak ${size(memory.peak_allocated)}`;
    words.title = meter.title;
    const used = Math.round(100 * (this.data.latest.utilisation[device.slot] || 0));
    work.textContent = `${used} % busy · ${counters.kernels.toLocaleString("en")} kernel${counters.kernels === 1 ? "" : "s"}`;
    const failed = this.data.latest.error;
    const mine = failed && (failed.device === device.index || (failed.device === null && device.index === 0));
    error.textContent = mine ? `${failed.kind}: ${failed.message}` : "";
    error.title = error.textContent;
    error.hidden = !mine;
    card.setAttribute("aria-pressed", device.slot === this.device);
    card.setAttribute("aria-label", `cuda:${device.index} ${device.name}: ${words.textContent}, ${work.textContent}`
      + `${mine ? `, ${error.textContent}` : ""}`);
  }

  // -------------------------------------------------------------- memory

  paintMemory() {
    const device = this.data.devices.get(this.device);
    const rows = this.data.rows(this.device);
    if (!rows.some((row) => row[RESERVED])) {
      this.say(`cuda:${device.index} has held nothing since ${this.data.cleared >= 0 ? "it was cleared" : "it was enabled"}.`
        + " Memory is drawn as soon as a cell uses this GPU.");
      return;
    }
    if (!this.figure || this.figure.kind !== "memory") this.makeMemory();
    const { svg, legend, layers, lines, summary } = this.figure;
    const width = Math.max(svg.parentElement.clientWidth, 280);
    const height = width < 520 ? 230 : Math.min(Math.round(width * 0.34), 460);
    const scale = this.scale = width > 1300 ? 1.35 : 1;
    const box = this.box = { left: 74 * scale, right: 12, top: 16 * scale, bottom: 40 * scale, width, height };
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    const first = rows[0][0];
    const last = Math.max(rows[rows.length - 1][0], first + 1);
    const total = (row) => CATEGORIES.reduce((sum, _, place) => sum + row[place + 1], 0);
    const most = Math.max(...rows.map((row) => Math.max(total(row), row[RESERVED])), 1);
    const capacity = device.memory.total - device.memory.context;
    const near = capacity < most * 2.2;
    const top = near ? capacity * 1.06 : most * 1.12;
    const x = (ns) => box.left + ((width - box.left - box.right) * (ns - first)) / (last - first);
    const y = (bytes) => box.top + (height - box.top - box.bottom) * (1 - bytes / top);
    const held = new Array(rows.length).fill(0);
    CATEGORIES.forEach((_, place) => {
      const below = held.slice();
      rows.forEach((row, i) => { held[i] += row[place + 1]; });
      layers[place].setAttribute("d", area(rows, held, below, x, y));
    });
    lines.reserved.setAttribute("d", steps(rows, rows.map((row) => row[RESERVED]), x, y));
    this.paintAxes(first, last, top, x, y, capacity, near);
    this.x = { first, last, x, rows };
    const now = rows[rows.length - 1];
    const at = this.cursor === null ? now : rows[Math.min(this.cursor, rows.length - 1)];
    const sum = total(at);
    lines.cursor.setAttribute("d", this.cursor === null ? "" : `M${x(at[0])},${box.top}V${height - box.bottom}`);
    legend.head.textContent = this.cursor === null ? "now" : `at ${duration(at[0])}`;
    CATEGORIES.forEach((_, place) => {
      const bytes = at[place + 1];
      legend.cells[place].textContent = size(bytes);
      legend.cells[place].title = exact(bytes);
      legend.shares[place].textContent = sum ? `${Math.round((100 * bytes) / sum)} %` : "";
    });
    const [allocated, reserved] = legend.cells.slice(CATEGORIES.length);
    allocated.textContent = size(sum);
    allocated.title = exact(sum);
    reserved.textContent = size(at[RESERVED]);
    reserved.title = exact(at[RESERVED]);
    summary.textContent = `cuda:${device.index} holds ${size(total(now))} of the ${size(capacity)} for tensors: `
      + CATEGORIES.filter((_, place) => now[place + 1]).map((name) =>
        `${spoken(name)} ${size(now[CATEGORIES.indexOf(name) + 1])}`).join(", ");
    svg.setAttribute("aria-label", `Memory over simulated time. ${summary.textContent}`);
  }

  makeMemory() {
    const layers = CATEGORIES.map((name) => s("path", { class: `fg-layer fg-${name}` }));
    const lines = {
      reserved: s("path", { class: "fg-line fg-reserved" }), capacity: s("path", { class: "fg-line fg-capacity" }),
      peak: s("path", { class: "fg-line fg-peak-line" }), marks: s("path", { class: "fg-marks" }),
      grid: s("path", { class: "fg-grid" }), cursor: s("path", { class: "fg-cursor" }),
    };
    const texts = s("g", { class: "fg-texts" });
    const svg = s("svg", { class: "fg-figure", role: "img", tabindex: "0", width: "100%" },
      lines.grid, ...layers, lines.reserved, lines.peak, lines.capacity, lines.marks, lines.cursor, texts);
    const move = (event) => {
      const frame = svg.getBoundingClientRect();
      const { first, last, x, rows } = this.x;
      const scale = this.box.width / frame.width;
      const ns = first + (((event.clientX - frame.left) * scale - x(first)) / (x(last) - x(first))) * (last - first);
      let place = rows.findIndex((row) => row[0] > ns);
      place = place < 0 ? rows.length - 1 : Math.max(place - 1, 0);
      this.cursor = place;
      this.hover(event, rows[place]);
      this.draw(true);
    };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerleave", () => { this.cursor = null; this.tip.hidden = true; this.draw(true); });
    svg.addEventListener("blur", () => { this.cursor = null; this.draw(true); });
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9 }[event.key];
      if (!step) return;
      const count = this.x.rows.length;
      this.cursor = Math.min(Math.max((this.cursor === null ? count - 1 : this.cursor) + step, 0), count - 1);
      event.preventDefault();
      this.draw(true);
    });
    const cells = [];
    const shares = [];
    const head = h("th", { scope: "col", class: "fg-number" });
    const rows = [...CATEGORIES, "allocated", "reserved"].map((name, place) => {
      cells.push(h("td", { class: "fg-number" }));
      shares.push(h("td", { class: "fg-number fg-share" }));
      return h("tr", { class: place < CATEGORIES.length ? "" : "fg-sum" }, h("th", { scope: "row" },
        h("i", { class: place < CATEGORIES.length ? `fg-swatch fg-${name}` : `fg-swatch fg-swatch-${name}` }), spoken(name)),
      cells[place], shares[place]);
    });
    const legend = { head, cells, shares };
    const summary = h("p", { class: "fg-hidden" });
    this.figure = { kind: "memory", svg, layers, lines, texts, legend, summary };
    this.body.replaceChildren(h("div", { class: "fg-memory" },
      h("div", { class: "fg-plot" }, svg),
      h("table", { class: "fg-table fg-legend" }, h("caption", { class: "fg-hidden" }, "Memory by what it is for"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "memory"), head, h("th", { scope: "col",
          class: "fg-number" }, "share"))),
        h("tbody", {}, ...rows))), summary);
  }

  paintAxes(first, last, top, x, y, capacity, near) {
    const { lines, texts } = this.figure;
    const { box, scale } = this;
    const bottom = box.height - box.bottom;
    const right = box.width - box.right;
    const words = [];
    const word = (text, at, above, attributes) => words.push(s("text", { x: at, y: above,
      "font-size": 12 * scale, ...attributes }, text));
    let grid = `M${box.left},${bottom}H${right}`;
    let unit = Math.pow(1024, Math.max(Math.floor(Math.log(top) / Math.log(1024)), 0));
    for (const bytes of ticks(top / unit, 4)) {
      const at = y(bytes * unit);
      grid += `M${box.left},${at}H${right}`;
      word(size(bytes * unit), box.left - 6, at + 4 * scale, { "text-anchor": "end" });
    }
    const [ns, name] = axisUnit(last - first);
    unit = 0;
    for (const value of ticks(last / ns, box.width < 520 ? 4 : 8, first / ns)) {
      const at = x(value * ns);
      if (at > right - 8) continue;
      grid += `M${at},${bottom}v5`;
      word(`${+value.toFixed(6)}${unit ? "" : ` ${name}`}`, at, bottom + 17 * scale, { "text-anchor": "middle" });
      unit = 1;
    }
    lines.grid.setAttribute("d", grid);
    lines.capacity.setAttribute("d", near ? `M${box.left},${y(capacity)}H${right}` : "");
    if (near) word(`room for tensors ${size(capacity)}`, right, y(capacity) + 14 * scale, { "text-anchor": "end", class: "fg-on" });
    const peak = this.data.devices.get(this.device).memory.peak_allocated;
    const visible = peak <= top && peak > 0;
    lines.peak.setAttribute("d", visible ? `M${box.left},${y(peak)}h${14 * scale}M${right - 14 * scale},${y(peak)}H${right}` : "");
    if (visible) word(`peak ${size(peak)}`, box.left + 18 * scale, y(peak) + 4 * scale, { class: "fg-on" });
    let marks = "";
    const inside = this.data.steps.filter(([when]) => when >= first && when <= last);
    const every = Math.max(1, Math.ceil(inside.length / (box.width < 520 ? 4 : 9)));
    inside.forEach(([when, number], place) => {
      marks += `M${x(when)},${bottom}v${-8 * scale}`;
      if (place % every === 0) {
        word(place === 0 ? `step ${number}` : String(number), x(when), bottom + 33 * scale,
          { "text-anchor": "middle", class: "fg-step" });
      }
    });
    lines.marks.setAttribute("d", marks);
    texts.replaceChildren(...words);
  }

  hover(event, row) {
    const total = CATEGORIES.reduce((sum, _, place) => sum + row[place + 1], 0);
    this.tip.replaceChildren(h("b", {}, `at ${duration(row[0])}`),
      h("dl", {}, ...CATEGORIES.flatMap((name, place) => (row[place + 1]
        ? [h("dt", {}, h("i", { class: `fg-swatch fg-${name}` }), spoken(name)),
          h("dd", {}, `${size(row[place + 1])} (${exact(row[place + 1])})`)] : [])),
      h("dt", {}, "allocated"), h("dd", {}, `${size(total)} (${exact(total)})`),
      h("dt", {}, "reserved"), h("dd", {}, `${size(row[RESERVED])} (${exact(row[RESERVED])})`)));
    this.showTip(event);
  }

  showTip(event) {
    this.tip.hidden = false;
    const frame = this.root.getBoundingClientRect();
    const left = event.clientX - frame.left + 14;
    const room = frame.width - this.tip.offsetWidth - 8;
    this.tip.style.left = `${Math.max(4, left > room ? event.clientX - frame.left - this.tip.offsetWidth - 14 : left)}px`;
    this.tip.style.top = `${event.clientY - frame.top + 12}px`;
  }

  // -------------------------------------------------------------- transfers

  paintTransfers() {
    const all = [...this.data.devices.values()].filter((device) => device.index >= 0);
    const { counters } = this.data.devices.get(this.device);
    const moved = all.some((device) => device.counters.h2d_count || device.counters.d2h_count
      || device.counters.p2p_sent_count);
    if (!moved) {
      this.say("No copies yet: x.to(\"cuda\") copies from the host, x.cpu() and x.item() copy back.");
      return;
    }
    const index = this.data.devices.get(this.device).index;
    const lines = [
      ["host to device", counters.h2d_count, counters.h2d_bytes, counters.h2d_ns],
      ["device to host", counters.d2h_count, counters.d2h_bytes, counters.d2h_ns],
      ["to other devices", counters.p2p_sent_count, counters.p2p_sent_bytes, counters.p2p_sent_ns],
    ].map(([name, count, bytes, ns]) => [name, count.toLocaleString("en"), { text: size(bytes), title: exact(bytes) },
      duration(ns), ns ? rate((bytes / ns) * 1e9) : "", count ? size(Math.round(bytes / count)) : ""]);
    const most = Math.max(1, ...all.flatMap((device) => [device.counters.h2d_bytes, device.counters.d2h_bytes,
      ...Object.values(device.counters.p2p_sent_to)]));
    const cell = (bytes) => ({ text: bytes ? size(bytes) : "·", title: exact(bytes), class: "fg-heat",
      style: `--heat: ${bytes ? Math.max(0.08, Math.sqrt(bytes / most)) : 0}` });
    const matrix = [["host", { text: "" }, ...all.map((device) => cell(device.counters.h2d_bytes))],
      ...all.map((from) => [`cuda:${from.index}`, cell(from.counters.d2h_bytes), ...all.map((to) => (from === to
        ? { text: "" } : cell(from.counters.p2p_sent_to[to.slot] || 0)))])];
    this.show("transfers", h("div", { class: "fg-columns" },
      table(`Copies of cuda:${index}`, ["direction", "copies", "bytes", "time", "mean rate", "mean size"], lines,
        [1, 2, 3, 4, 5]),
      table("Bytes from (row) to (column)", ["", "host", ...all.map((device) => `cuda:${device.index}`)], matrix,
        [...all.map((_, place) => place + 2), 1])));
  }

  // -------------------------------------------------------------- collectives

  paintCollectives() {
    const { collectives } = this.data;
    const { index, counters } = this.data.devices.get(this.device);
    if (!collectives.length && !counters.collective_count) {
      this.say("No collectives yet: %%ranks 4 at the top of a cell runs it on four ranks, and torch.distributed's "
        + "all_reduce, or DistributedDataParallel, makes some.");
      return;
    }
    const rows = collectives.map((one) => {
      const waits = Object.entries(one.waited_ns).map(([device, ns]) => [+device, ns]).sort((a, b) => b[1] - a[1]);
      const [[longest, most], [late]] = [waits[0], waits[waits.length - 1]];
      const who = most > 0 && longest !== late ? `cuda:${longest} waited ${duration(most)}, cuda:${late} came last` : "nobody";
      return [one.operation, String(one.ranks.length), one.count.toLocaleString("en"),
        { text: size(one.nbytes), title: exact(one.nbytes) }, duration(one.ns), rate(one.bus_bandwidth), who];
    });
    const lanes = (this.data.timeline ? this.data.timeline.lanes : [])
      .map((lane) => ({ label: lane.label, bars: lane.bars.filter((bar) => bar[2] === "collective") }))
      .filter((lane) => lane.bars.length);
    const counted = h("p", { class: "fg-note", title: exact(counters.collective_bytes) },
      `cuda:${index} took part in ${counters.collective_count.toLocaleString("en")}, of ${size(counters.collective_bytes)},`
      + ` and waited ${duration(counters.collective_wait_ns)} for other ranks. The table has those that were recorded:`
      + " the beginning of each cell, and steps now and then.");
    this.show("collectives", counted, rows.length && table("Collectives, as recorded", ["operation", "ranks", "calls", "bytes", "time",
      "bus bandwidth", "who waited"], rows, [1, 2, 3, 4, 5]));
    if (lanes.length) this.body.firstChild.append(this.lanes(lanes, "Collectives by rank, in the last window"));
  }

  // -------------------------------------------------------------- timeline

  paintTimeline() {
    const { timeline } = this.data;
    if (!timeline) {
      this.say("No timeline yet: a step of training, or a cell that has run, is drawn here when it is over.");
      return;
    }
    if (this.figure && this.figure.kind === "timeline" && this.figure.number === timeline.number
      && this.figure.width === this.body.clientWidth) return;
    const top = table("What took most", ["kernel", "device", "calls", "time"], timeline.top.map(([device, name, calls, ns]) =>
      [name, `cuda:${device}`, calls.toLocaleString("en"), duration(ns)]), [2, 3]);
    this.show("timeline", h("p", { class: "fg-note" }, timeline.title), this.lanes(timeline.lanes, "Timeline"), top);
    this.figure = { kind: "timeline", number: timeline.number, width: this.body.clientWidth };
  }

  lanes(lanes, label) {
    const { timeline } = this.data;
    const width = Math.max(this.body.clientWidth - 2, 280);
    const scale = width > 1300 ? 1.35 : 1;
    const left = (width < 520 ? 96 : 130) * scale;
    const row = 26 * scale;
    const height = lanes.length * row + 30 * scale;
    const length = Math.max(timeline.ended_ns - timeline.began_ns, 1);
    const x = (ns) => left + ((width - left - 10) * (ns - timeline.began_ns)) / length;
    const svg = s("svg", { class: "fg-figure", role: "img", width: "100%", height, viewBox: `0 0 ${width} ${height}`,
      "aria-label": `${label}: ${timeline.title}` });
    const kinds = new Set();
    lanes.forEach((lane, place) => {
      const top = place * row + 2;
      svg.append(s("text", { x: left - 8, y: top + row * 0.62, "text-anchor": "end", "font-size": 12 * scale }, lane.label));
      for (const [start, end, kind, text] of lane.bars) {
        kinds.add(kind);
        const wide = Math.max(x(end) - x(start), 0.6);
        const bar = s("rect", { x: x(start), y: top, width: wide, height: row - 5,
          class: `fg-bar fg-kind-${kind.replace(" ", "-")}` });
        bar.addEventListener("pointermove", (event) => {
          this.tip.replaceChildren(h("b", {}, text || kind), h("div", {}, `${kind}, ${duration(end - start)}`),
            h("div", {}, `from ${duration(start - timeline.began_ns)} after the start`));
          this.showTip(event);
        });
        bar.addEventListener("pointerleave", () => { this.tip.hidden = true; });
        svg.append(bar);
      }
    });
    const [ns, name] = axisUnit(length);
    for (const value of ticks(length / ns, width < 520 ? 4 : 8)) {
      const at = x(timeline.began_ns + value * ns);
      svg.append(s("text", { x: at, y: height - 8 * scale, "text-anchor": "middle", "font-size": 12 * scale },
        `${+value.toFixed(6)}${value === 0 ? ` ${name}` : ""}`));
    }
    return h("figure", { class: "fg-lanes" }, svg, h("figcaption", { class: "fg-key" }, ...[...kinds].map((kind) =>
      h("span", {}, h("i", { class: `fg-swatch fg-kind-${kind.replace(" ", "-")}` }), kind))));
  }

  // -------------------------------------------------------------- advice

  paintAdvice() {
    this.show("advice", h("ul", { class: "fg-advice" }, ...this.data.advice.map((one) =>
      h("li", {}, h("b", {}, one.rule), ` ${one.text} `, h("code", {}, one.line)))));
  }

  show(kind, ...children) {
    this.figure = { kind };
    this.body.replaceChildren(h("div", {}, ...children));
  }
}

// ---------------------------------------------------------------- drawing

function ticks(most, count, least = 0) {
  const raw = (most - least) / count || 1;
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw) || raw;
  const found = [];
  for (let value = Math.ceil(least / step) * step; value <= most * 1.0001 && found.length < 20; value += step) found.push(value);
  return found;
}

function steps(rows, values, x, y) {
  let path = "";
  rows.forEach((row, i) => {
    const at = x(row[0]).toFixed(1);
    const to = y(values[i]).toFixed(1);
    path += i ? `H${at}V${to}` : `M${at},${to}`;
  });
  return path;
}

function area(rows, above, below, x, y) {
  if (!above.some((value, i) => value > below[i])) return "";
  let path = steps(rows, above, x, y);
  for (let i = rows.length - 1; i >= 0; i -= 1) {
    const to = y(below[i]).toFixed(1);
    path += i === rows.length - 1 ? `V${to}` : `V${to}H${x(rows[i][0]).toFixed(1)}`;
  }
  return `${path}Z`;
}

export default {
  render({ model, el }) {
    const panel = new Panel(model, el);
    const first = model.get("state");
    if (first && first.kind) panel.take(first);
    const heard = (message) => {
      if (message && message.telemetry && panel.take(message.telemetry)) model.send({ do: "state" });
    };
    model.on("msg:custom", heard);
    model.send({ do: "state" });
    return () => {
      model.off("msg:custom", heard);
      panel.close();
    };
  },
};
