// The scrubber, the events beside it, and what the log said right after the chosen one.

import { get, requestPath } from "./api.js";
import { el, replace, setText } from "./dom.js";
import { EventList } from "./event-list.js";
import { count, leaves, moment, plain } from "./format.js";

const PATIENCE_MS = 250;
const TABS = [
  ["changes", "Changed"],
  ["state", "State"],
  ["event", "Event"],
];

export class Past {
  // `moved(look)` is called with what was known at the chosen event, once it is there.
  constructor(moved) {
    this.moved = moved;
    this.index = -1;
    this.whole = false;
    this.tab = "changes";
    this.events = new EventList((index) => this.go(index), () => this.onMore());
    this.range = el("input", { type: "range", min: 1, max: 1, value: 1, id: "scrubber", "aria-label": "Event to look at", oninput: () => this.go(Number(this.range.value) - 1) });
    this.where = el("output", { for: "scrubber" });
    this.leaves = el("div", { class: "leaves", tabindex: 0, role: "tabpanel", id: "leaves" });
    this.tabs = TABS.map(([id, name]) => el("button", { type: "button", role: "tab", "aria-controls": "leaves", "aria-selected": id === this.tab, id: `tab-${id}`, data: { tab: id }, onclick: () => this.choose(id) }, name));
    this.title = el("span", { class: "aside mono", id: "past-where" });
    this.scope = el("input", { type: "checkbox", id: "whole-story", onchange: () => this.changeScope() });
    this.node = el(
      "section",
      { class: "card", "aria-labelledby": "past-title" },
      el("div", { class: "card-head" }, el("h2", { id: "past-title" }, "What was known"), this.events.note, el("label", { class: "aside check for-operators" }, this.scope, "with scheduler and workers"), el("span", { class: "grow" }), this.title),
      el("div", { class: "scrub" }, el("span", { class: "steps" }, this.step("‹", -1, "Previous event"), this.step("›", 1, "Next event")), this.range, this.where),
      el("div", { class: "past" }, el("div", { class: "events" }, this.events.box), el("div", { class: "state" }, el("div", { class: "tabs", role: "tablist", "aria-label": "At this event" }, this.tabs), this.leaves)),
    );
  }

  step(sign, by, name) {
    return el("button", { type: "button", "aria-label": name, onclick: () => this.go(this.index + by) }, sign);
  }

  get length() {
    return this.events.source?.length ?? 0;
  }

  // Whether it stands, or is to stand, at the newest event there is, so that it goes on with the
  // request; what was known there may still be on its way.
  get follows() {
    const stands = this.wanted || (this.index < 0 ? 0 : this.events.source.versionAt(this.index));
    return stands === this.request.version;
  }

  // `state` is the newest one, which needs no fold.
  open(request, version = 0, state = null) {
    this.request = request;
    this.newest = { version: request.version, state };
    this.look = null;
    this.index = -1;
    this.wanted = version || request.version;
    this.events.open(request, this.whole);
  }

  changeScope() {
    this.whole = this.scope.checked;
    this.open(this.request, this.look?.version ?? 0, this.newest.state);
  }

  grow(request) {
    if (request.version <= this.request.version) return;
    const follows = this.follows;
    this.request = request;
    if (follows) this.wanted = request.version;
    this.events.grow(request.version);
  }

  // Go to where the request's own stream had this version, as soon as it is there.
  goTo(version) {
    this.wanted = version;
    this.onMore();
  }

  onMore() {
    this.range.max = Math.max(1, this.length);
    const { source } = this.events;
    if (this.wanted && this.length) {
      const index = source.indexOf(this.wanted);
      if (source.versionAt(index) >= this.wanted || source.complete) {
        this.wanted = 0;
        this.go(index);
      } else source.at(this.length - 1);
    }
    this.tellWhere();
  }

  go(wanted) {
    const index = Math.min(this.length - 1, Math.max(0, wanted));
    if (index === this.index || index < 0) return;
    this.index = index;
    this.range.value = index + 1;
    this.events.select(index, this.row()?.batch_id);
    this.tellWhere();
    this.fetch();
  }

  row() {
    return this.index < 0 ? undefined : this.events.source.at(this.index);
  }

  tellWhere() {
    setText(this.where, this.length ? `${count(this.index + 1)} of ${count(this.length)}${this.events.source.complete ? "" : "+"}` : "");
    const said = this.row();
    this.range.setAttribute("aria-valuetext", `event ${this.index + 1} of ${this.length}${said ? `, ${said.name}` : ""}`);
  }

  // One look at a time; while it is under way only the newest wish is kept.
  async fetch() {
    if (this.busy) return;
    this.busy = true;
    for (let done = null; done !== this.place() && this.index >= 0; ) {
      done = this.place();
      try {
        const look = await this.lookAt(this.request.request_id, this.events.source.versionAt(this.index), this.row());
        if (done === this.place()) this.show(look);
      } catch (error) {
        if (done === this.place()) this.fail(error);
      }
    }
    this.busy = false;
  }

  // What was shown before is of another event.
  fail(error) {
    this.look = null;
    setText(this.title, "");
    replace(this.leaves, el("p", { class: "quiet-text", role: "alert" }, error.message));
  }

  place() {
    return `${this.request.request_id}/${this.whole}/${this.index}`;
  }

  async lookAt(id, version, row) {
    const own = !row || row.stream_id === `request-${id}`;
    const known = this.look?.id === id && this.look.version === version && this.look.differences ? this.look.answer : null;
    const answer = known ?? (await this.fold(id, version, own));
    if (own) return { id, version, answer, event: answer.event, differences: answer.differences };
    // Of another stream: it changed nothing of the request's own state.
    const { event } = await get(`/api/events/${row.partition}/${row.offset}`);
    return { id, version, answer, event, differences: [] };
  }

  // What a long stream said is folded for a while; its newest state is shown meanwhile.
  async fold(id, version, own) {
    const { newest, whole, index } = this;
    const early = setTimeout(async () => {
      if (!own || !newest.state || newest.version !== version) return;
      try {
        const { event } = await get(`${requestPath(id)}/events/${version}`);
        const place = `${id}/${whole}/${index}`;
        if (this.place() === place && this.look?.version !== version) this.show({ id, version, answer: { state: newest.state }, event, differences: null });
      } catch {
        // The fold, which is on its way, says what is wrong.
      }
    }, PATIENCE_MS);
    try {
      return await get(`${requestPath(id)}/states/${version}`);
    } finally {
      clearTimeout(early);
    }
  }

  show(look) {
    this.look = look;
    const { event } = look;
    setText(this.title, `${event.name ?? event.type} · offset ${event.partition}:${event.offset}${event.recorded_at ? ` · ${moment(event.recorded_at)}` : ""}`);
    this.events.select(this.index, this.row()?.batch_id);
    this.tellWhere();
    this.fill();
    this.moved(look);
  }

  choose(tab) {
    this.tab = tab;
    for (const button of this.tabs) button.setAttribute("aria-selected", button.dataset.tab === tab);
    this.leaves.scrollTop = 0;
    this.fill();
  }

  fill() {
    if (!this.look) return;
    const { answer, event, differences } = this.look;
    this.leaves.setAttribute("aria-labelledby", `tab-${this.tab}`);
    const changed = new Map((differences ?? []).map((one) => [one.path, one]));
    if (this.tab === "changes" && !differences) replace(this.leaves, el("p", { class: "quiet-text" }, "The events before it are being folded …"));
    else if (this.tab === "changes") replace(this.leaves, differences.map((one) => leaf(one.path, one.after, one)), changed.size ? null : el("p", { class: "quiet-text" }, "It changed nothing of the request's own state. The tab Event shows what it says."));
    else if (this.tab === "state") replace(this.leaves, grouped(answer.state, changed));
    else replace(this.leaves, grouped(event, new Map()));
  }
}

function grouped(record, changed) {
  let group = "";
  return [...leaves(record)].map(([path, value]) => {
    const node = leaf(path, value, changed.get(path));
    const own = path.includes(".") ? path.split(".", 1)[0] : "";
    if (own !== group) node.classList.add("new-group");
    group = own;
    return node;
  });
}

function leaf(path, value, difference) {
  const text = plain(value);
  const was = difference && difference.before !== null ? plain(difference.before) : "";
  return el(
    "div",
    { class: difference ? "leaf changed" : "leaf" },
    // It may break after a dot or an underscore, and nowhere else.
    el("span", { class: "path" }, path.split(/(?<=[._])/).flatMap((part) => [part, el("wbr")])),
    el("span", { class: text === "" ? "value none" : "value" }, was ? el("span", { class: "was" }, el("span", { class: "unseen" }, "was "), was) : null, text === "" ? "–" : text),
  );
}
