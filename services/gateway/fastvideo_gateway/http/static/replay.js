// The replay panel: ask, watch the comparisons as they are made, and see the first that differs.

import { postStream } from "./api.js";
import { el, replace, setText } from "./dom.js";
import { count, span } from "./format.js";
import { Rows } from "./rows.js";

const ROW = 26;
const SHOWN_MAX = 10_000;
const SEEN_MAX = 10;
const KINDS = [
  ["state", "State", "Folds the log again and compares with what the projections say."],
  ["scheduler", "Scheduler", "Folds the scheduler's stream up to the chosen event and lists the workers and requests that it knew there."],
  ["decision", "Decisions", "Feeds the logged inputs to the scheduler's core and compares what it decides."],
  ["execution", "Execution", "Runs the request's loops on a worker and compares digests, step by step."],
  ["cache", "Caches", "Derives the keys of every look-up again and computes hits again."],
  ["behavior", "Behaviour", "Computes the log-probabilities of recorded samples again."],
];

export class Replay {
  // `place()` says where the scrubber stands, as {partition, offset}; null at the end.
  constructor(place) {
    this.place = place;
    this.kind = "state";
    this.stopper = null;
    this.comparisons = [];
    this.question = el("p", { class: "question" }, KINDS[0][2]);
    this.upTo = el("input", { type: "checkbox", id: "replay-up-to" });
    this.upToLabel = el("label", { class: "aside check" }, this.upTo, "up to the chosen event");
    this.start = el("button", { class: "main-action", type: "button", id: "replay-start", onclick: () => (this.stopper ? this.stop() : this.run()) }, "Replay");
    this.progress = el("progress", { max: 1, value: 0, hidden: true, "aria-label": "Progress of the replay" });
    this.told = el("span", { class: "aside", role: "status", id: "replay-status" });
    this.verdict = el("div", { class: "verdict", role: "alert", hidden: true });
    this.divergence = el("div", { class: "divergence", hidden: true });
    this.box = el("div", { class: "rows", role: "listbox", tabindex: 0, id: "comparisons", "aria-label": "Comparisons" });
    this.table = el("div", { class: "comparisons", hidden: true }, this.box);
    this.rows = new Rows(this.box, { height: ROW, make: makeRow, fill: (row, index) => fillRow(row, this.comparisons[index]), chosen: (index) => this.pick(index) });
    this.node = el(
      "section",
      { class: "card for-operators", "aria-labelledby": "replay-title", id: "replay" },
      el("div", { class: "card-head" }, el("h2", { id: "replay-title" }, "Replay"), el("span", { class: "aside" }, "Runs the past again and compares. Nothing is written into it.")),
      el("div", { class: "kinds", role: "radiogroup", "aria-label": "Kind of replay" }, KINDS.map(([id, name]) => this.choice(id, name))),
      this.question,
      el("div", { class: "replay-actions" }, this.start, this.upToLabel, this.progress, this.told),
      this.verdict,
      this.divergence,
      this.table,
    );
  }

  choice(id, name) {
    const input = el("input", { type: "radio", name: "replay-kind", value: id, checked: id === this.kind, onchange: () => this.choose(id) });
    return el("label", {}, input, name);
  }

  choose(id) {
    this.kind = id;
    setText(this.question, KINDS.find(([known]) => known === id)[2]);
    this.upToLabel.hidden = id !== "state";
  }

  open(requestId) {
    if (this.requestId === requestId) return;
    this.stop();
    this.requestId = requestId;
    this.clear();
  }

  clear() {
    this.comparisons = [];
    this.rows.setCount(0);
    for (const node of [this.verdict, this.divergence, this.table, this.progress]) node.hidden = true;
    setText(this.told, "");
  }

  stop() {
    if (!this.stopper) return;
    this.stopper.abort();
    this.rest();
    setText(this.told, "stopped");
  }

  rest() {
    this.stopper = null;
    setText(this.start, "Replay");
    this.progress.hidden = true;
  }

  asked() {
    const whole = this.kind === "scheduler";
    const place = whole || (this.kind === "state" && this.upTo.checked) ? this.place() : null;
    const until = place ? { [place.partition]: place.offset } : {};
    if (whole) return { kind: "state", subject_id: "scheduler", until, comparisons_max: SHOWN_MAX };
    return { kind: this.kind, subject_id: this.requestId, until, comparisons_max: SHOWN_MAX };
  }

  async run() {
    const stopper = new AbortController();
    let last = "";
    this.clear();
    this.stopper = stopper;
    setText(this.start, "Stop");
    setText(this.told, "asking …");
    this.progress.hidden = false;
    this.progress.removeAttribute("value");
    try {
      for await (const [event, value] of postStream("/api/replays", this.asked(), stopper.signal)) {
        if (stopper.signal.aborted) return;
        last = event;
        this.take(event, value);
      }
      // Such as one of a gateway that stops.
      if (last !== "report" && last !== "error") this.fail("It ended without a report.");
    } catch (error) {
      if (!stopper.signal.aborted) this.fail(error.message);
    } finally {
      if (this.stopper === stopper) this.rest();
    }
  }

  take(event, value) {
    if (event === "progress") this.move(value);
    else if (event === "comparison") this.add(value);
    else if (event === "report") this.report(value);
    else if (event === "error") this.fail(value.error.message);
  }

  move({ done, total, message }) {
    if (total) this.progress.value = done / total;
    setText(this.told, [message, total ? `${count(done)} of ${count(total)}` : done ? count(done) : ""].filter(Boolean).join(" · "));
  }

  add(comparison) {
    if (this.comparisons.length >= SHOWN_MAX) return;
    const follows = this.box.scrollTop + this.box.clientHeight >= this.box.scrollHeight - ROW;
    this.comparisons.push(comparison);
    this.table.hidden = false;
    this.rows.setCount(this.comparisons.length);
    this.table.style.height = `${Math.min(this.comparisons.length, SEEN_MAX) * ROW + 1}px`;
    if (follows) this.box.scrollTop = this.box.scrollHeight;
    if (!comparison.equal && this.divergence.hidden) this.diverge(comparison);
  }

  report(report) {
    if (!this.comparisons.length) for (const one of report.comparisons) this.add(one);
    this.verdict.className = `verdict ${report.equal ? "same" : "differs"}`;
    const speed = report.original_seconds && report.seconds ? `, ${(report.original_seconds / report.seconds).toFixed(1)} times the original's speed` : "";
    replace(
      this.verdict,
      el("strong", {}, sentence(report.headline || (report.equal ? "nothing differs" : "it differs"))),
      el("div", {}, `${count(report.compared)} compared, ${count(report.differing)} differ, ${span(report.seconds)}${speed}`),
      report.promise?.reason ? el("div", { class: "promise" }, `Promised: ${report.promise.kind === "none" ? "nothing" : report.promise.kind}. ${sentence(report.promise.reason)}`) : null,
    );
    this.verdict.hidden = false;
    setText(this.told, "done");
    if (report.first_divergence) this.diverge(report.first_divergence);
  }

  diverge(one) {
    const facts = [
      ["at", one.subject],
      ["step", one.step === null ? "" : [one.node_id, one.step].filter((part) => part !== "").join(" ")],
      ["component", one.component],
      ["layer", one.layer],
      ["logged", one.expected],
      ["now", one.found],
      ["difference", one.max_abs_difference === null ? "" : `at most ${one.max_abs_difference}`],
      ["", one.detail],
    ].filter(([, value]) => value);
    replace(this.divergence, el("h3", {}, "First divergence"), el("dl", {}, facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))])));
    this.divergence.hidden = false;
  }

  fail(message) {
    this.verdict.className = "verdict differs";
    replace(this.verdict, el("strong", {}, "No answer of this replay"), el("div", {}, sentence(message)));
    this.verdict.hidden = false;
    setText(this.told, "");
  }

  pick(index) {
    this.rows.select(index);
    const one = this.comparisons[index];
    if (one && !one.equal) this.diverge(one);
  }
}

function sentence(text) {
  // An id stays as it is.
  return /^[a-z]+_/.test(text) ? text : `${text.charAt(0).toUpperCase()}${text.slice(1)}`;
}

function makeRow() {
  const parts = { mark: el("span", { class: "verdict-mark" }), subject: el("span"), expected: el("span", { class: "mono" }), found: el("span", { class: "mono" }) };
  const row = el("div", { class: "comparison" }, parts.mark, parts.subject, parts.expected, parts.found);
  row.parts = parts;
  return row;
}

function fillRow(row, one) {
  if (!one) return;
  const { parts } = row;
  row.dataset.equal = one.equal;
  setText(parts.mark, one.equal ? "=" : "≠");
  setText(parts.subject, one.subject);
  setText(parts.expected, one.expected);
  setText(parts.found, one.equal ? (one.detail || "the same") : one.found);
  row.title = one.detail;
}
