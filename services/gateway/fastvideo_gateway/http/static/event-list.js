// A request's events: any of a hundred thousand in sight at once, fetched where they are looked at.

import { get, requestPath } from "./api.js";
import { el, setText } from "./dom.js";
import { between, count } from "./format.js";
import { Rows } from "./rows.js";

const PAGE = 200;
const PAGES_KEPT = 80;
const ROW = 26;
const BAD = new Set(["request.failed", "trace.loop_failed", "worker.lost", "trace.nan"]);
const END = new Set(["request.completed"]);

export class EventList {
  // `chosen(version)` is called when the user picks an event.
  constructor(chosen) {
    this.box = el("div", { class: "rows", role: "listbox", tabindex: 0, id: "events", "aria-label": "Events" });
    this.note = el("span", { class: "aside" });
    this.pages = new Map();
    this.version = 0;
    this.rows = new Rows(this.box, {
      height: ROW,
      make: makeRow,
      fill: (row, index) => this.fill(row, index),
      chosen: (index) => chosen(index + 1),
    });
  }

  open(requestId, acceptedAt, version) {
    this.requestId = requestId;
    this.acceptedAt = acceptedAt;
    this.pages.clear();
    this.batchId = "";
    this.rows.selected = -1;
    this.box.scrollTop = 0;
    this.grow(version);
  }

  // The stream has this many events now.
  grow(version) {
    if (version < this.version && this.pages.size) return;
    // The last page may have been short.
    this.pages.delete(Math.floor(this.version / PAGE));
    this.version = version;
    setText(this.note, `${count(version)} event${version === 1 ? "" : "s"}`);
    this.rows.setCount(version);
  }

  select(version, batchId = "") {
    this.batchId = batchId;
    this.rows.select(version - 1);
  }

  at(version) {
    const page = this.pages.get(Math.floor((version - 1) / PAGE));
    return Array.isArray(page) ? page[(version - 1) % PAGE] : undefined;
  }

  async fetch(number) {
    const { requestId } = this;
    this.pages.set(number, null);
    try {
      const answer = await get(`${requestPath(requestId)}/events`, { after: number * PAGE, limit: PAGE });
      if (requestId !== this.requestId) return;
      this.pages.set(number, answer.events);
      // The oldest fetched goes first.
      if (this.pages.size > PAGES_KEPT) this.pages.delete(this.pages.keys().next().value);
    } catch {
      // What cannot be had now is asked for again when it is looked at.
      if (requestId === this.requestId) setTimeout(() => this.pages.get(number) === null && this.pages.delete(number), 2000);
    }
    this.rows.ask();
  }

  fill(row, index) {
    const number = Math.floor(index / PAGE);
    if (!this.pages.has(number)) this.fetch(number);
    const one = this.at(index + 1);
    const { parts } = row;
    setText(parts.no, String(index + 1));
    setText(parts.at, one ? offset(between(this.acceptedAt, one.recorded_at)) : "");
    setText(parts.name, one?.name ?? "…");
    setText(parts.text, one?.text ?? "");
    row.className = `row event-row ${one ? family(one.name) : ""}`;
    row.dataset.batch = Boolean(one && this.batchId && one.batch_id === this.batchId);
    row.title = one ? `${one.recorded_at}  ${one.stream_id} version ${one.version}, offset ${one.partition}:${one.offset}` : "";
  }
}

function family(name) {
  if (BAD.has(name)) return "family-bad";
  if (END.has(name)) return "family-end";
  return name.startsWith("trace.") || name === "request.progress" ? "family-trace" : "";
}

export function offset(seconds) {
  const sign = seconds < 0 ? "−" : "+";
  return `${sign}${Math.abs(seconds).toFixed(3)}`;
}

function makeRow() {
  const parts = {
    no: el("span", { class: "no" }),
    at: el("span", { class: "at" }),
    name: el("span", { class: "name" }),
    text: el("span", { class: "text" }),
  };
  const row = el("div", { class: "event-row" }, parts.no, parts.at, parts.name, parts.text);
  row.parts = parts;
  return row;
}
