// The scrubber, the events beside it, and what the log said right after the chosen one.

import { get, requestPath } from "./api.js";
import { el, replace, setText } from "./dom.js";
import { EventList } from "./event-list.js";
import { count, leaves, moment, plain } from "./format.js";

const TABS = [
  ["changes", "Changed"],
  ["state", "State"],
  ["event", "Event"],
];

export class Past {
  // `moved(answer)` is called with the state at the chosen event, once it is there.
  constructor(moved) {
    this.moved = moved;
    this.version = 0;
    this.last = 0;
    this.tab = "changes";
    this.events = new EventList((version) => this.go(version));
    this.range = el("input", { type: "range", min: 1, max: 1, value: 1, id: "scrubber", "aria-label": "Event to look at", oninput: () => this.go(Number(this.range.value)) });
    this.where = el("output", { for: "scrubber" });
    this.leaves = el("div", { class: "leaves", tabindex: 0, role: "tabpanel", id: "leaves" });
    this.tabs = TABS.map(([id, name]) => el("button", { type: "button", role: "tab", "aria-controls": "leaves", "aria-selected": id === this.tab, id: `tab-${id}`, data: { tab: id }, onclick: () => this.choose(id) }, name));
    this.title = el("span", { class: "aside mono" });
    this.node = el(
      "section",
      { class: "card", "aria-labelledby": "past-title" },
      el("div", { class: "card-head" }, el("h2", { id: "past-title" }, "What was known"), this.events.note, el("span", { class: "grow" }), this.title),
      el(
        "div",
        { class: "scrub" },
        el("span", { class: "steps" }, this.step("‹", -1, "Previous event"), this.step("›", 1, "Next event")),
        this.range,
        this.where,
      ),
      el("div", { class: "past" }, el("div", { class: "events" }, this.events.box), el("div", { class: "state" }, el("div", { class: "tabs", role: "tablist", "aria-label": "At this event" }, this.tabs), this.leaves)),
    );
  }

  step(sign, by, name) {
    return el("button", { type: "button", "aria-label": name, onclick: () => this.go(this.version + by) }, sign);
  }

  open(row) {
    this.requestId = row.request_id;
    this.last = 0;
    this.version = 0;
    this.answer = null;
    this.events.open(row.request_id, row.accepted_at, row.version);
    this.grow(row.version);
    this.go(row.version);
  }

  // The request has had more events; whoever stood at the end goes on with it.
  grow(version) {
    if (version <= this.last) return;
    const follows = this.version === this.last && this.last > 0;
    this.last = version;
    this.range.max = version;
    this.events.grow(version);
    if (follows) this.go(version);
    this.tellWhere();
  }

  go(wanted) {
    const version = Math.min(this.last, Math.max(1, wanted));
    if (version === this.version || !this.last) return;
    this.version = version;
    this.range.value = version;
    this.events.select(version);
    this.tellWhere();
    this.fetch();
  }

  tellWhere() {
    setText(this.where, `${count(this.version)} of ${count(this.last)}`);
    const said = this.events.at(this.version);
    this.range.setAttribute("aria-valuetext", `event ${this.version} of ${this.last}${said ? `, ${said.name}` : ""}`);
  }

  // One look-up at a time; while it is under way only the newest wish is kept.
  async fetch() {
    if (this.busy) return;
    this.busy = true;
    try {
      for (let wish = ""; wish !== `${this.requestId}/${this.version}`; ) {
        const { requestId, version } = this;
        wish = `${requestId}/${version}`;
        const answer = await get(`${requestPath(requestId)}/states/${version}`);
        if (wish === `${this.requestId}/${this.version}`) this.show(answer);
      }
    } catch (error) {
      replace(this.leaves, el("p", { class: "quiet-text", role: "alert" }, error.message));
    } finally {
      this.busy = false;
    }
  }

  show(answer) {
    this.answer = answer;
    setText(this.title, `${answer.name} · offset ${answer.partition}:${answer.offset} · ${moment(answer.recorded_at)}`);
    this.events.select(answer.version, this.events.at(answer.version)?.batch_id);
    this.tellWhere();
    this.fill();
    this.moved(answer);
  }

  choose(tab) {
    this.tab = tab;
    for (const button of this.tabs) button.setAttribute("aria-selected", button.dataset.tab === tab);
    this.leaves.scrollTop = 0;
    this.fill();
  }

  fill() {
    if (!this.answer) return;
    this.leaves.setAttribute("aria-labelledby", `tab-${this.tab}`);
    const changed = new Map(this.answer.differences.map((one) => [one.path, one]));
    if (this.tab === "changes") replace(this.leaves, this.answer.differences.map((one) => leaf(one.path, one.after, one)), changed.size ? null : el("p", { class: "quiet-text" }, "This event changed nothing of the request's state."));
    else if (this.tab === "state") replace(this.leaves, grouped(this.answer.state, changed));
    else replace(this.leaves, grouped(this.answer.event, new Map()));
  }
}

function grouped(record, changed) {
  let group = "";
  return [...leaves(record)].map(([path, value]) => {
    const node = leaf(path, value, changed.get(path));
    const own = path.split(".", 1)[0];
    if (group && own !== group && (path.includes(".") || node)) node.classList.add("new-group");
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
    el("span", { class: "path" }, path),
    el("span", { class: text === "" ? "value none" : "value" }, was ? el("span", { class: "was" }, el("span", { class: "unseen" }, "was "), was) : null, text === "" ? "–" : text),
  );
}
