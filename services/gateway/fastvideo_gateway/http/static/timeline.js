// The waterfall: what ran and what was waited for, lane by lane. Drawn, so that thousands of bars
// cost nothing; what it says is also in the lines that a screen reader gets.

import { el, replace, setText } from "./dom.js";
import { between, span, words } from "./format.js";

const LANE = 22;
const GROUP = 20;
const AXIS = 24;
const MARKS_MAX = 12;
const CAUSES = {
  place: "no place",
  resource: "a resource",
  batch: "other batches",
  preemption: "preempted",
  loss: "a loss",
  preparation: "making a loop",
  delivery: "messages",
};
const KINDS = {
  diffusion_step: "diffusion",
  diffusion_window: "diffusion",
  chunk_step: "diffusion",
  encoder_chunk: "encoder",
  vae_tile: "vae",
  artifact_write: "write",
  ar_token: "token",
  ar_prefill: "token",
  audio_chunk: "audio",
};
const MARKS = {
  preempted: "preempted",
  snapshotted: "saved",
  worker_lost: "worker lost",
  restarted: "began again",
  elected: "scheduler changed",
  worker_detached: "stream broke",
  worker_reattached: "worker back",
  cancel_requested: "cancel asked",
};

export class Timeline {
  // `chosen(unit)` is called with a unit of the explanation, or with the seconds of a free place.
  constructor(chosen) {
    this.chosen = chosen;
    this.canvas = el("canvas", { role: "img" });
    this.hint = el("div", { class: "hint", hidden: true });
    this.legend = el("div", { class: "legend" });
    this.said = el("ul", { class: "unseen" });
    this.box = el("div", { class: "timeline" }, this.canvas, this.hint);
    this.lanes = [];
    this.units = new Map();
    this.batches = new Map();
    this.window = [0, 1];
    this.total = 1;
    this.cursor = null;
    this.unitIds = new Set();
    this.listen();
  }

  show(answer) {
    const { explanation, lanes } = answer;
    const before = this.total;
    const wasWhole = this.window[0] === 0 && this.window[1] === before;
    this.explanation = explanation;
    this.lanes = lanes;
    this.units = new Map(explanation.units.map((unit) => [unit.unit_id, unit]));
    this.batches = new Map(explanation.batches.map((batch) => [batch.batch_id, batch]));
    this.total = Math.max(explanation.totals.total_seconds, 1e-3);
    if (wasWhole || this.window[1] > this.total) this.window = [0, this.total];
    this.place();
    this.describe();
    this.draw();
  }

  place() {
    let y = AXIS;
    let group = null;
    for (const lane of this.lanes) {
      if (lane.group !== group) {
        group = lane.group;
        lane.head = y;
        y += GROUP;
      } else lane.head = null;
      lane.y = y;
      y += LANE;
    }
    // Below the lanes the marks have their names.
    this.tall = y + (this.marked().length ? GROUP : 6);
    this.canvas.style.height = `${this.tall}px`;
  }

  describe() {
    const kinds = new Set();
    const causes = new Set();
    for (const lane of this.lanes) for (const bar of lane.bars) (bar.shows in CAUSES ? causes : kinds).add(bar.shows);
    const waited = this.explanation.totals.waited_by_cause;
    const ordered = [...causes].sort((a, b) => (waited[b] ?? 0) - (waited[a] ?? 0));
    replace(
      this.legend,
      [...kinds].sort().map((kind) => this.key(kind, words(kind))),
      ordered.map((cause) => this.key(cause, `waits: ${CAUSES[cause]} ${span(waited[cause] ?? 0)}`)),
    );
    this.canvas.setAttribute("aria-label", `Timeline. ${this.explanation.headline}`);
    replace(this.said, this.lanes.map((lane) => el("li", {}, `${lane.group}, ${lane.name}: ${lane.note}`)));
  }

  key(shows, text) {
    const swatch = el("canvas", { class: "swatch", width: 28, height: 20, "aria-hidden": "true" });
    const pen = swatch.getContext("2d");
    pen.scale(2, 2);
    this.paint(pen, shows, false);
    pen.fillRect(0, 0, 14, 10);
    if (shows in CAUSES && shows !== "delivery") {
      pen.fillStyle = this.hatch(pen);
      pen.fillRect(0, 0, 14, 10);
    }
    return el("span", {}, swatch, text);
  }

  colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  paint(pen, shows, isOther) {
    pen.globalAlpha = isOther ? 0.45 : 1;
    pen.fillStyle = this.colour(shows in CAUSES ? `--cause-${shows}` : `--kind-${KINDS[shows] ?? "other"}`);
  }

  hatch(pen) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 12;
    const stroke = tile.getContext("2d");
    stroke.strokeStyle = this.colour("--hatch");
    stroke.globalAlpha = 0.55;
    stroke.lineWidth = 1.4;
    for (const start of [-12, 0, 12]) {
      stroke.moveTo(start, 12);
      stroke.lineTo(start + 12, 0);
    }
    stroke.stroke();
    const pattern = pen.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(0.5));
    return pattern;
  }

  // Where the lanes are: names at the left, notes at the right where there is room.
  edges() {
    const wide = this.canvas.clientWidth;
    const left = wide < 560 ? 92 : 128;
    const right = wide < 860 ? 12 : Math.min(360, wide * 0.3);
    return [left, Math.max(left + 60, wide - right)];
  }

  x(seconds) {
    const [left, right] = this.edges();
    return left + ((seconds - this.window[0]) / (this.window[1] - this.window[0])) * (right - left);
  }

  seconds(x) {
    const [left, right] = this.edges();
    return this.window[0] + ((x - left) / (right - left)) * (this.window[1] - this.window[0]);
  }

  ask() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.draw();
    });
  }

  draw() {
    if (!this.explanation || !this.canvas.clientWidth) return;
    const ratio = devicePixelRatio || 1;
    const wide = this.canvas.clientWidth;
    this.canvas.width = wide * ratio;
    this.canvas.height = this.tall * ratio;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const look = {
      ink: this.colour("--ink"), pale: this.colour("--ink-3"), line: this.colour("--line"),
      accent: this.colour("--accent"), bad: this.colour("--bad"), hatch: this.hatch(pen),
      sans: getComputedStyle(document.body).fontFamily,
    };
    this.axis(pen, look);
    for (const lane of this.lanes) this.lane(pen, lane, look, wide);
    this.marks(pen, look);
    this.chosenBars(pen, look);
    this.line(pen, look);
    this.brushed(pen, look);
  }

  axis(pen, look) {
    const [left, right] = this.edges();
    const step = niceStep((this.window[1] - this.window[0]) / Math.max(2, (right - left) / 90));
    pen.font = `11px ${look.sans}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let at = Math.ceil(this.window[0] / step) * step; at <= this.window[1] + 1e-9; at += step) {
      const x = Math.round(this.x(at)) + 0.5;
      pen.strokeStyle = look.line;
      pen.beginPath();
      pen.moveTo(x, AXIS - 4);
      pen.lineTo(x, this.tall);
      pen.stroke();
      pen.fillStyle = look.pale;
      pen.fillText(at === 0 ? "0" : tick(at, step), x, 11);
    }
  }

  lane(pen, lane, look, wide) {
    const [left, right] = this.edges();
    pen.textBaseline = "middle";
    if (lane.head !== null) {
      pen.font = `600 11px ${look.sans}`;
      pen.fillStyle = look.pale;
      pen.textAlign = "left";
      pen.fillText(lane.group, 12, lane.head + GROUP / 2 + 2);
    }
    const middle = lane.y + LANE / 2;
    pen.font = `${lane.is_other ? "" : "500 "}12px ${look.sans}`;
    pen.fillStyle = lane.is_other ? look.pale : look.ink;
    pen.textAlign = "right";
    pen.fillText(fit(pen, lane.name, left - 22), left - 10, middle);
    pen.font = `11px ${look.sans}`;
    pen.fillStyle = look.pale;
    pen.textAlign = "left";
    if (wide - right > 60) pen.fillText(fit(pen, lane.note, wide - right - 20), right + 10, middle);
    pen.save();
    pen.beginPath();
    pen.rect(left, lane.y, right - left, LANE);
    pen.clip();
    const tall = lane.is_other ? 9 : 15;
    // Waits first, so that what ran lies on them.
    for (const waits of [true, false]) for (const bar of lane.bars) if (bar.shows in CAUSES === waits) this.bar(pen, bar, middle - tall / 2, tall, lane.is_other, look);
    pen.restore();
    pen.globalAlpha = 1;
  }

  bar(pen, bar, top, tall, isOther, look) {
    if (bar.start_s > this.window[1] || bar.start_s + bar.seconds < this.window[0]) return;
    const from = this.x(bar.start_s);
    const isWait = bar.shows in CAUSES;
    const least = isWait ? 0.8 : 1.6;
    const length = Math.max(this.x(bar.start_s + bar.seconds) - from, least);
    // A hair between two bars tells them apart, where there is room.
    const gap = !isWait && length > 4 ? 0.8 : 0;
    this.paint(pen, bar.shows, isOther);
    pen.fillRect(from, top, length - gap, tall);
    if (isWait && bar.shows !== "delivery" && length > 2) {
      pen.globalAlpha = 1;
      pen.fillStyle = look.hatch;
      pen.fillRect(from, top, length, tall);
    }
  }

  // The ones that a routine makes come last: the others have their names first.
  marked() {
    const known = this.explanation.marks.filter((one) => one.name in MARKS);
    const routine = (one) => one.name === "snapshotted";
    return [...known.filter((one) => !routine(one)), ...known.filter(routine)].slice(0, MARKS_MAX);
  }

  marks(pen, look) {
    const [left, right] = this.edges();
    pen.font = `11px ${look.sans}`;
    const named = [];
    for (const mark of this.marked()) {
      const x = this.x(between(this.explanation.accepted_at, mark.at));
      if (x < left || x > right) continue;
      const colour = mark.name === "snapshotted" ? look.pale : look.bad;
      pen.strokeStyle = colour;
      pen.setLineDash([4, 3]);
      pen.beginPath();
      pen.moveTo(x, AXIS - 2);
      pen.lineTo(x, this.tall);
      pen.stroke();
      pen.setLineDash([]);
      // A name that would lie on another one is left out.
      const long = pen.measureText(MARKS[mark.name]).width;
      const from = x + 4 + long > right ? x - 4 - long : x + 4;
      if (named.some(([begin, end]) => from < end + 4 && from + long > begin - 4)) continue;
      named.push([from, from + long]);
      pen.fillStyle = colour;
      pen.textAlign = "left";
      pen.fillText(MARKS[mark.name], from, this.tall - 6);
    }
  }

  chosenBars(pen, look) {
    const [left, right] = this.edges();
    pen.strokeStyle = look.ink;
    pen.lineWidth = 1.6;
    for (const lane of this.lanes) {
      if (lane.is_other) continue;
      for (const bar of lane.bars) {
        if (bar.shows in CAUSES || !this.unitIds.has(bar.unit_id)) continue;
        const from = Math.max(left, this.x(bar.start_s));
        const to = Math.min(right, this.x(bar.start_s + bar.seconds));
        if (to < left || from > right) continue;
        pen.strokeRect(from - 1, lane.y + 2.5, Math.max(to - from, 2) + 2, LANE - 5);
      }
    }
    pen.lineWidth = 1;
  }

  line(pen, look) {
    const [left, right] = this.edges();
    if (this.cursor === null) return;
    const x = this.x(this.cursor);
    if (x < left - 1 || x > right + 1) return;
    pen.strokeStyle = look.accent;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(x, AXIS - 6);
    pen.lineTo(x, this.tall);
    pen.stroke();
    pen.fillStyle = look.accent;
    pen.beginPath();
    pen.moveTo(x - 5, AXIS - 8);
    pen.lineTo(x + 5, AXIS - 8);
    pen.lineTo(x, AXIS - 1);
    pen.fill();
    pen.lineWidth = 1;
  }

  brushed(pen, look) {
    if (!this.brush) return;
    pen.fillStyle = look.accent;
    pen.globalAlpha = 0.14;
    pen.fillRect(Math.min(...this.brush), AXIS, Math.abs(this.brush[1] - this.brush[0]), this.tall - AXIS);
    pen.globalAlpha = 1;
  }

  // The moment that the scrubber is at, and the units that its event is about.
  mark(seconds, unitIds = []) {
    this.cursor = seconds;
    this.unitIds = new Set(unitIds);
    this.ask();
  }

  unitsOfBatch(batchId) {
    return batchId ? this.explanation?.units.filter((unit) => unit.batch_id === batchId).map((unit) => unit.unit_id) ?? [] : [];
  }

  whole() {
    this.window = [0, this.total];
    this.ask();
  }

  barAt(x, y) {
    const lane = this.lanes.find((one) => y >= one.y && y < one.y + LANE);
    if (!lane) return null;
    const at = this.seconds(x);
    const near = (this.window[1] - this.window[0]) / 400;
    const under = lane.bars.filter((bar) => at >= bar.start_s - near && at <= bar.start_s + bar.seconds + near);
    const bar = under.findLast((one) => !(one.shows in CAUSES)) ?? under.at(-1);
    return bar ? { lane, bar } : null;
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      this.from = event.offsetX;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.from !== undefined && Math.abs(event.offsetX - this.from) > 5) {
        this.brush = [this.from, event.offsetX];
        this.ask();
      } else this.tip(event);
    });
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", () => this.release(null));
    canvas.addEventListener("pointerleave", () => (this.hint.hidden = true));
    canvas.addEventListener("dblclick", () => this.whole());
    new ResizeObserver(() => this.ask()).observe(this.box);
    window.addEventListener("themechange", () => {
      if (this.explanation) this.describe();
      this.ask();
    });
  }

  release(event) {
    if (this.from === undefined) return;
    const { brush } = this;
    this.brush = null;
    this.from = undefined;
    if (brush && event) {
      const [from, to] = [this.seconds(Math.min(...brush)), this.seconds(Math.max(...brush))];
      if (to - from > 1e-4) this.window = [Math.max(0, from), Math.min(this.total, to)];
    } else if (event) {
      const found = this.barAt(event.offsetX, event.offsetY);
      const unit = found && this.units.get(found.bar.unit_id);
      if (unit) this.chosen({ unit });
      else this.chosen({ seconds: Math.min(this.total, Math.max(0, this.seconds(event.offsetX))) });
    }
    this.ask();
  }

  tip(event) {
    const found = this.barAt(event.offsetX, event.offsetY);
    this.hint.hidden = !found;
    if (!found) return;
    replace(this.hint, this.said_of(found).map((line, index) => el(index ? "div" : "b", {}, line)));
    const wide = this.box.clientWidth;
    const x = Math.min(event.offsetX + 14, wide - this.hint.offsetWidth - 8);
    this.hint.style.transform = `translate(${Math.max(4, x)}px, ${event.offsetY + 18}px)`;
  }

  said_of({ lane, bar }) {
    const unit = this.units.get(bar.unit_id);
    const place = unit ? `${unit.node_id} ${unit.step_range.stop}/${unit.step_range.total}` : lane.name;
    if (bar.shows in CAUSES) {
      const wait = unit?.waits.find((one) => one.cause === bar.shows && Math.abs(between(this.explanation.accepted_at, one.begun_at) - bar.start_s) < 1e-4);
      const behind = wait?.batches ? `behind ${wait.batches} batch${wait.batches === 1 ? "" : "es"}` : "";
      return [`${place} waited ${span(bar.seconds)}`, `for ${CAUSES[bar.shows]}`, behind, wait?.reason].filter(Boolean);
    }
    if (!unit) return [`${words(bar.shows)}, ${span(bar.seconds)}`, lane.is_other ? lane.name : ""].filter(Boolean);
    const shared = unit.shared_with.length + unit.shared_with_others;
    return [
      `${place}, ${span(bar.seconds)}`,
      `${words(unit.kind)} on ${unit.worker_id}, batch ${unit.batch_id} of ${unit.batch_size}`,
      shared ? `shared with ${shared} other request${shared === 1 ? "" : "s"}` : "",
      unit.predicted_seconds ? `predicted ${span(unit.predicted_seconds)}, waited ${span(unit.waited_seconds)}` : "",
      unit.error ? `${unit.error.reason}: ${unit.error.message}` : "",
    ].filter(Boolean);
  }
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
}

function tick(seconds, step) {
  if (step >= 1) return `${Math.round(seconds)} s`;
  if (step >= 0.01) return `${seconds.toFixed(step >= 0.1 ? 1 : 2)} s`;
  return `${(seconds * 1000).toFixed(step >= 0.001 ? 0 : 1)} ms`;
}

function fit(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let short = text;
  while (short.length > 1 && pen.measureText(`${short}…`).width > width) short = short.slice(0, -Math.max(1, Math.floor(short.length / 12)));
  return `${short}…`;
}
