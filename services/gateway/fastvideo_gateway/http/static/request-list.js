// The list of requests: searched on the gateway, loaded as it is scrolled, changed as they change.

import { get } from "./api.js";
import { byId, el, setText } from "./dom.js";
import { ago, between, count, shortId, span } from "./format.js";
import { Rows } from "./rows.js";

const PAGE = 100;
const AHEAD = 40;
const AGAIN_MS = 2000;
const ROW = 58;
const GLYPHS = { completed: "✓", failed: "!", cancelled: "–", running: "▸", queued: "…", accepted: "·" };

export function glyph(status) {
  const node = el("span", { class: "glyph", "aria-hidden": "true" });
  showGlyph(node, status);
  return node;
}

function showGlyph(node, status) {
  if (node.dataset.status === status) return;
  node.dataset.status = status;
  node.textContent = GLYPHS[status] ?? "?";
}

export class RequestList {
  constructor(onOpen) {
    this.onOpen = onOpen;
    this.items = [];
    this.places = new Map();
    this.cursor = "";
    this.complete = false;
    this.loading = null;
    this.generation = 0;
    this.told = null;
    this.openId = "";
    this.at = 0;
    this.rows = new Rows(byId("requests"), {
      height: ROW,
      make: makeRow,
      fill: (row, index) => this.fill(row, index),
      chosen: (index) => this.openAt(index),
    });
    setInterval(() => !document.hidden && this.rows.ask(), 10_000);
  }

  filters() {
    return { search: byId("search").value.trim(), status: byId("status").value, model: byId("model").value };
  }

  isFiltered() {
    return Object.values(this.filters()).some(Boolean);
  }

  // Begin anew with the filters as they are.
  async load() {
    this.generation += 1;
    const generation = this.generation;
    this.loading = null;
    // What is told meanwhile may be newer than what is read.
    const told = (this.told = []);
    try {
      const page = await get("/api/requests", { ...this.filters(), limit: PAGE });
      if (generation !== this.generation) return;
      this.items = page.requests;
      this.cursor = page.next_cursor;
      this.complete = !page.next_cursor;
      this.reindex();
      this.rows.box.scrollTop = 0;
      this.at = Math.max(0, this.places.get(this.openId) ?? 0);
      this.told = null;
      this.take(told);
    } catch (error) {
      if (generation !== this.generation) return;
      this.told = null;
      this.tell(error.message);
    }
  }

  async more() {
    if (this.complete || this.loading) return;
    const generation = this.generation;
    this.loading = get("/api/requests", { ...this.filters(), limit: PAGE, cursor: this.cursor });
    try {
      const page = await this.loading;
      if (generation !== this.generation) return;
      this.items.push(...page.requests.filter((one) => !this.places.has(one.request_id)));
      this.cursor = page.next_cursor;
      this.complete = !page.next_cursor;
      this.reindex();
      this.changed();
    } catch (error) {
      if (generation !== this.generation) return;
      this.tell(error.message);
      // The rest is asked for again, and not at once.
      await new Promise((again) => setTimeout(again, AGAIN_MS));
      if (generation === this.generation) this.rows.ask();
    } finally {
      if (generation === this.generation) this.loading = null;
    }
  }

  // What the gateway says has changed.
  take(changes) {
    this.told?.push(...changes);
    const unknown = [];
    const { status } = this.filters();
    let gone = false;
    for (const one of changes) {
      const place = this.places.get(one.request_id);
      if (place === undefined) unknown.push(one);
      else if (one.version >= this.items[place].version) {
        this.items[place] = one;
        gone ||= Boolean(status) && one.status !== status;
      }
    }
    if (gone || (unknown.length && this.isFiltered())) this.reloadSoon();
    else if (unknown.length) this.insert(unknown);
    this.changed();
  }

  insert(unknown) {
    // Older than the loaded ones: they come when they are scrolled to.
    const last = this.complete ? "" : (this.items.at(-1)?.accepted_at ?? "");
    const newer = unknown.filter((one) => one.accepted_at >= last);
    if (!newer.length) return;
    const box = this.rows.box;
    const held = this.items[this.at]?.request_id;
    this.items = [...newer, ...this.items].sort((a, b) => (a.accepted_at < b.accepted_at ? 1 : a.accepted_at > b.accepted_at ? -1 : a.request_id < b.request_id ? 1 : -1));
    this.reindex();
    this.at = this.places.get(held) ?? 0;
    if (box.scrollTop > ROW) box.scrollTop += newer.length * ROW;
  }

  reloadSoon() {
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.rows.box.scrollTop < ROW && this.load(), 1000);
  }

  reindex() {
    this.places = new Map(this.items.map((one, index) => [one.request_id, index]));
  }

  changed() {
    const more = this.complete ? 0 : 1;
    this.rows.selected = this.places.get(this.openId) ?? -1;
    this.rows.setCount(this.items.length + more);
    const filtered = this.isFiltered() ? " found" : "";
    if (!this.items.length) this.tell(filtered ? "Nothing found." : "No request yet. Submit one: fastvideo generate \"a red three\"");
    else this.tell(`${count(this.items.length)}${this.complete ? "" : "+"} request${this.items.length === 1 && this.complete ? "" : "s"}${filtered}`);
  }

  tell(text) {
    setText(byId("list-note"), text);
  }

  fill(row, index) {
    if (index >= this.items.length - AHEAD) this.more();
    const one = this.items[index];
    row.dataset.at = index === this.at;
    fillRow(row, one);
  }

  move(by) {
    if (!this.items.length) return;
    this.at = Math.min(this.items.length - 1, Math.max(0, this.at + by));
    this.rows.show(this.at);
    this.rows.ask();
  }

  openAt(index = this.at) {
    const one = this.items[index];
    if (!one) return;
    this.at = index;
    this.onOpen(one.request_id);
  }

  mark(requestId) {
    this.openId = requestId;
    const place = this.places.get(requestId);
    if (place !== undefined) this.at = place;
    this.rows.select(place ?? -1);
  }
}

function makeRow() {
  const parts = {
    glyph: glyph("accepted"),
    prompt: el("span", { class: "prompt" }),
    took: el("span", { class: "took" }),
    model: el("span"),
    id: el("span", { class: "mono" }),
    when: el("span", { class: "when" }),
    bar: el("span"),
  };
  const row = el(
    "div",
    { class: "request-row" },
    parts.glyph,
    parts.prompt,
    parts.took,
    el("span", { class: "sub" }, parts.id, parts.model),
    parts.when,
    el("span", { class: "progress", hidden: true }, parts.bar),
  );
  row.parts = parts;
  return row;
}

function fillRow(row, one) {
  const { parts } = row;
  if (!one) {
    setText(parts.prompt, "loading …");
    for (const name of ["took", "model", "id", "when"]) setText(parts[name], "");
    showGlyph(parts.glyph, "accepted");
    return;
  }
  showGlyph(parts.glyph, one.status);
  setText(parts.prompt, one.prompt || `(${one.program_id.replaceAll("_", " ")})`);
  setText(parts.took, took(one));
  setText(parts.model, one.model_id);
  setText(parts.id, shortId(one.request_id));
  setText(parts.when, ago(one.accepted_at));
  row.setAttribute("aria-label", `${one.status}: ${one.prompt || one.request_id}, ${one.model_id}, ${ago(one.accepted_at)}`);
  row.title = one.error || one.queue_reason || (one.expired_at ? "What it made has expired" : "");
  const running = one.status === "running";
  parts.bar.parentElement.hidden = !running;
  if (running) parts.bar.style.transform = `scaleX(${one.progress})`;
}

function took(one) {
  if (one.total_seconds !== null) return span(one.total_seconds);
  if (one.status === "running") return `${Math.round(one.progress * 100)} %`;
  return one.ended_at ? span(between(one.accepted_at, one.ended_at)) : one.status;
}
