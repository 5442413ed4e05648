// A request's events, of which only those in sight are there.
//
// Of its own stream any page can be had at once, since its versions have no gaps. The whole story,
// with what the scheduler and the workers said of it, is read from its beginning as far as one goes.

import { get, requestPath } from "./api.js";
import { el, setText } from "./dom.js";
import { between, count } from "./format.js";
import { Rows } from "./rows.js";

const PAGE = 200;
const PAGES_KEPT = 80;
const STORY_PAGE = 500;
const STORY_MAX = 100_000;
const AHEAD = 100;
const AGAIN_MS = 2000;
const ROW = 26;
const BAD = new Set(["request.failed", "trace.loop_failed", "worker.lost", "trace.nan"]);
const END = new Set(["request.completed"]);

// Pages of the request's own stream.
class OwnStream {
  constructor(requestId, length, changed) {
    this.requestId = requestId;
    this.length = length;
    this.complete = true;
    this.changed = changed;
    this.pages = new Map();
  }

  grow(version) {
    // The last page may have been short.
    this.pages.delete(Math.floor(this.length / PAGE));
    this.length = version;
  }

  at(index) {
    const number = Math.floor(index / PAGE);
    if (!this.pages.has(number)) this.fetch(number);
    return this.pages.get(number)?.[index % PAGE];
  }

  versionAt(index) {
    return index + 1;
  }

  indexOf(version) {
    return version - 1;
  }

  async fetch(number) {
    this.pages.set(number, null);
    try {
      const answer = await get(`${requestPath(this.requestId)}/events`, { after: number * PAGE, limit: PAGE });
      this.pages.set(number, answer.events);
      // The one that was fetched first goes first.
      if (this.pages.size > PAGES_KEPT) this.pages.delete(this.pages.keys().next().value);
    } catch {
      // What cannot be had now is asked for again when it is looked at.
      setTimeout(() => this.pages.get(number) === null && this.pages.delete(number), AGAIN_MS);
    }
    this.changed();
  }
}

// All that the log says of the request, in the order of recording.
class Story {
  constructor(requestId, since, changed) {
    this.requestId = requestId;
    this.own = `request-${requestId}`;
    this.since = since;
    this.changed = changed;
    this.rows = [];
    this.versions = [];
    this.cursor = "";
    this.complete = false;
    this.full = false;
    this.trouble = "";
    this.more();
  }

  get length() {
    return this.rows.length;
  }

  grow() {
    if (this.rows.length < STORY_MAX) this.complete = false;
    this.more();
  }

  at(index) {
    if (index >= this.rows.length - AHEAD) this.more();
    return this.rows[index];
  }

  // The version that the request's own stream had then.
  versionAt(index) {
    return Math.max(1, this.versions[index] ?? 1);
  }

  indexOf(version) {
    const index = this.versions.findIndex((one) => one >= version);
    return index < 0 ? this.rows.length - 1 : index;
  }

  async more() {
    if (this.busy || this.complete) return;
    this.busy = true;
    try {
      const answer = await get("/api/events", { request: this.requestId, since: this.since, limit: STORY_PAGE, cursor: this.cursor });
      for (const row of answer.events) {
        this.rows.push(row);
        this.versions.push(row.stream_id === this.own ? row.version : (this.versions.at(-1) ?? 0));
      }
      this.cursor = answer.next_cursor;
      this.full = this.rows.length >= STORY_MAX;
      this.complete = answer.complete || this.full;
      this.trouble = "";
    } catch (error) {
      this.trouble = error.message;
      setTimeout(() => this.rest(), AGAIN_MS);
      return this.changed();
    }
    this.rest();
  }

  rest() {
    this.busy = false;
    this.changed();
  }
}

export class EventList {
  // `chosen(index)` is called when the user picks an event, `changed()` when there are more.
  constructor(chosen, changed) {
    this.box = el("div", { class: "rows", role: "listbox", tabindex: 0, id: "events", "aria-label": "Events" });
    this.note = el("span", { class: "aside", id: "events-note" });
    this.source = null;
    this.changed = changed;
    this.rows = new Rows(this.box, { height: ROW, make: makeRow, fill: (row, index) => this.fill(row, index), chosen });
  }

  open(request, whole) {
    this.request = request;
    this.batchId = "";
    this.rows.selected = -1;
    this.box.scrollTop = 0;
    const source = whole ? new Story(request.request_id, request.accepted_at, () => this.told(source)) : new OwnStream(request.request_id, request.version, () => this.told(source));
    this.source = source;
    this.told(source);
  }

  told(source) {
    if (source !== this.source) return;
    const { length, complete, full, trouble } = source;
    setText(this.note, `${count(length)}${complete && !full ? "" : "+"} event${length === 1 ? "" : "s"}${trouble ? `, ${trouble}` : ""}`);
    this.rows.setCount(length);
    this.changed();
  }

  // The request's own stream has this many events now.
  grow(version) {
    this.source.grow(version);
    this.told(this.source);
  }

  select(index, batchId = "") {
    this.batchId = batchId;
    this.rows.select(index);
  }

  fill(row, index) {
    const one = this.source.at(index);
    const { parts } = row;
    setText(parts.no, String(index + 1));
    setText(parts.at, one?.recorded_at ? offset(between(this.request.accepted_at, one.recorded_at)) : "");
    setText(parts.name, one?.name ?? "…");
    setText(parts.text, one?.text ?? "");
    row.className = `row event-row ${one ? family(one) : ""}`;
    row.dataset.batch = Boolean(one && this.batchId && one.batch_id === this.batchId);
    row.title = one ? `${one.name}  ${one.text}\n${one.recorded_at}  ${one.stream_id} version ${one.version}, offset ${one.partition}:${one.offset}` : "";
  }
}

function family({ name, unreadable }) {
  if (unreadable || BAD.has(name)) return "family-bad";
  if (END.has(name)) return "family-end";
  return name.startsWith("trace.") || name === "request.progress" ? "family-trace" : "";
}

export function offset(seconds) {
  return `${seconds < 0 ? "−" : "+"}${Math.abs(seconds).toFixed(3)}`;
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
