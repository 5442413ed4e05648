// One request: the sentence, the media, the waterfall, the past, and replays.

import { contentPath, get, requestPath } from "./api.js";
import { byId, el, replace, setText } from "./dom.js";
import { between, bytes, count, moment, secondsOf, words } from "./format.js";
import { Past } from "./past.js";
import { Replay } from "./replay.js";
import { glyph } from "./request-list.js";
import { Timeline } from "./timeline.js";

const UNITS = 2000;
const REFRESH_MS = 1000;
const AGAIN_MS = 2000;

export class RequestView {
  constructor(onVersion) {
    this.box = byId("request");
    this.onVersion = onVersion;
    this.id = "";
    this.timeline = new Timeline((chosen) => this.onTimeline(chosen));
    this.past = new Past((look) => this.onLook(look));
    this.replay = new Replay(() => this.past.look?.event ?? null);
    this.head = el("header", { class: "head" });
    this.headline = el("p", { class: "headline", id: "headline", role: "status" });
    this.trouble = el("p", { class: "trouble", role: "alert", hidden: true });
    this.facts = el("dl", { class: "facts" });
    this.timelineNote = el("span", { class: "aside" });
    this.pages = el("span", {});
    const waterfall = el(
      "section",
      { class: "card", "aria-labelledby": "timeline-title" },
      el("div", { class: "card-head" }, el("h2", { id: "timeline-title" }, "Timeline"), this.timelineNote, el("span", { class: "grow" }), this.pages, el("button", { type: "button", onclick: () => this.timeline.whole(), title: "0" }, "Whole")),
      this.timeline.box,
      this.timeline.legend,
      this.timeline.said,
    );
    this.cards = [waterfall, this.past.node, this.replay.node];
    this.box.append(this.head, this.trouble, ...this.cards);
  }

  async open(id, version = 0) {
    if (this.id !== id) this.clear();
    this.id = id;
    this.missed = false;
    this.cursors = [""];
    this.mediaId = null;
    byId("empty").hidden = true;
    this.box.hidden = false;
    this.box.setAttribute("aria-busy", "true");
    byId("view").scrollTop = 0;
    setText(this.headline, "");
    this.trouble.hidden = true;
    this.replay.open(id);
    try {
      const answer = await get(requestPath(id));
      if (this.id !== id) return;
      this.show(answer);
      this.past.open(answer.request, version, answer.state);
      this.again(answer);
      await this.explain();
    } catch (error) {
      if (this.id !== id) return;
      this.fail(error.message);
      if (this.missed) this.refreshSoon(AGAIN_MS);
    } finally {
      if (this.id === id) this.box.removeAttribute("aria-busy");
    }
  }

  // The lists were behind the log: nothing will tell when they have caught up.
  again({ fresh }) {
    if (this.missed) this.refreshSoon(0);
    else if (!fresh) this.refreshSoon(AGAIN_MS);
    this.missed = false;
  }

  // Nothing of the request before is taken for the one that comes, or for one that does not exist.
  clear() {
    this.row = null;
    clearTimeout(this.refresh);
    this.refresh = null;
    document.title = "FastVideo";
    replace(this.head);
    replace(this.facts);
    for (const card of this.cards) card.hidden = true;
  }

  close() {
    this.id = "";
    this.replay.stop();
    this.box.hidden = true;
    byId("empty").hidden = false;
  }

  fail(message) {
    this.trouble.hidden = false;
    setText(this.trouble, message);
  }

  show({ request, state }) {
    this.row = request;
    this.state = state;
    for (const card of this.cards) card.hidden = false;
    document.title = `${request.prompt.slice(0, 60) || request.request_id} · FastVideo`;
    const title = el("h1", { class: "title", tabindex: -1 }, request.prompt || words(request.program_id));
    title.addEventListener("click", () => title.classList.toggle("whole"));
    this.chip = el("span", { class: "chip" }, glyph(request.status), el("span", { id: "request-status" }, request.status));
    this.mediaBox = el("figure", { class: "media", hidden: true });
    replace(
      this.head,
      el(
        "div",
        { class: "titles" },
        title,
        el("div", { class: "under" }, this.chip, this.copier(request.request_id), el("span", {}, request.model_id), el("span", {}, words(request.program_id)), el("span", { title: request.accepted_at }, moment(request.accepted_at))),
        this.headline,
        this.facts,
      ),
      this.mediaBox,
    );
    this.update(request, state);
  }

  copier(id) {
    const button = el("button", { class: "copy", type: "button", title: "Copy the id" }, id);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(id);
        button.textContent = "copied";
        setTimeout(() => (button.textContent = id), 900);
      } catch {
        getSelection().selectAllChildren(button); // Where the clipboard is closed, it is at least marked.
      }
    });
    return button;
  }

  update(request, state) {
    replace(this.chip, glyph(request.status), el("span", { id: "request-status" }, request.status === "running" ? `running ${Math.round(request.progress * 100)} %` : request.expired_at ? `${request.status}, expired` : request.status));
    this.trouble.hidden = !request.error;
    setText(this.trouble, request.error);
    if (state) replace(this.facts, facts(state));
    this.showMedia(request, state ?? this.state);
  }

  showMedia(request, state) {
    if (request.media_id === this.mediaId) return;
    this.mediaId = request.media_id;
    this.mediaBox.hidden = !request.media_id;
    if (!request.media_id) return;
    const source = contentPath(request.media_id);
    const shown = request.media_type.startsWith("video/")
      ? el("video", { src: source, controls: true, loop: true, muted: true, playsinline: true, preload: "metadata", "aria-label": "The generated video" })
      : el("img", { src: source, alt: "The generated image" });
    const stored = state.artifacts.filter((one) => one.digest && !one.deleted_at);
    const files = stored.map((one) => el("a", { href: contentPath(one.artifact_id), download: one.name, title: `sha256 ${one.digest}` }, `${one.name} ${bytes(one.size_bytes)}`));
    replace(this.mediaBox, shown, el("figcaption", { class: "files" }, files));
  }

  async explain() {
    const { id } = this;
    this.explainedAt = performance.now();
    const answer = await get(`${requestPath(id)}/explanation`, { limit: UNITS, cursor: this.cursors.at(-1) });
    if (this.id !== id) return;
    const { explanation } = answer;
    const text = explanation.headline;
    setText(this.headline, text.charAt(0).toUpperCase() + text.slice(1));
    const shown = explanation.units.length < explanation.unit_count ? `${count(explanation.units.length)} of ${count(explanation.unit_count)} units` : `${count(explanation.unit_count)} unit${explanation.unit_count === 1 ? "" : "s"}`;
    setText(this.timelineNote, [shown, explanation.left_out && `without ${explanation.left_out}`].filter(Boolean).join(", "));
    this.paging(answer);
    this.timeline.show(answer);
    if (this.past.look) this.onLook(this.past.look);
  }

  paging(answer) {
    const back = this.cursors.length > 1;
    if (!back && !answer.next_cursor) return replace(this.pages);
    const turn = (change) => () => {
      change();
      this.explain().catch((error) => this.fail(error.message));
    };
    replace(
      this.pages,
      el("button", { type: "button", disabled: !back, onclick: turn(() => this.cursors.pop()) }, "Earlier units"),
      el("button", { type: "button", disabled: !answer.next_cursor, onclick: turn(() => this.cursors.push(answer.next_cursor)) }, "Later units"),
    );
  }

  // Something happened to the request that is open.
  take(request) {
    // It is being read, perhaps as it was before.
    this.missed = !this.row;
    if (this.missed) return void (this.box.hasAttribute("aria-busy") || this.refreshSoon(REFRESH_MS));
    const ended = request.ended_at && !this.row.ended_at;
    this.row = request;
    this.past.grow(request);
    this.update(request, null);
    this.refreshSoon(ended ? 0 : REFRESH_MS);
  }

  refreshSoon(wait) {
    if (this.refresh && wait) return;
    clearTimeout(this.refresh);
    const { id } = this;
    this.refresh = setTimeout(async () => {
      this.refresh = null;
      if (this.id !== id) return;
      // It could not be had when it was opened.
      if (!this.row) return this.open(id);
      try {
        const answer = await get(requestPath(id));
        if (this.id !== id) return;
        this.row = answer.request;
        this.state = answer.state;
        this.mediaId = null;
        this.update(answer.request, answer.state);
        this.past.grow(answer.request);
        this.again(answer);
        await this.explain();
      } catch (error) {
        if (this.id === id) this.fail(error.message);
      }
    }, wait);
  }

  onLook({ version, event }) {
    this.onVersion(version === this.past.request.version ? 0 : version);
    const { timeline } = this;
    if (timeline.explanation?.request_id !== this.id) return;
    const at = event.recorded_at ? between(this.row.accepted_at, event.recorded_at) : null;
    const batch = this.past.row()?.batch_id;
    const under = batch ? timeline.unitsOfBatch(batch) : unitsOfProgress(event, timeline.explanation);
    timeline.mark(at, this.pickedUnit ? [this.pickedUnit] : under);
    this.pickedUnit = null;
  }

  async onTimeline({ unit, seconds }) {
    const accepted = secondsOf(this.row.accepted_at);
    const until = unit?.ended_at ?? unit?.started_at;
    // Told a moment after it happened; the event is the first one from then on.
    const at = until ? secondsOf(until) : accepted + (seconds ?? 0);
    if (unit) {
      this.pickedUnit = unit.unit_id;
      this.timeline.mark(this.timeline.cursor, [unit.unit_id]);
    }
    try {
      const place = await get(`${requestPath(this.id)}/place`, { before: new Date(at * 1000).toISOString() });
      this.past.goTo(unit ? place.version + 1 : Math.max(1, place.version));
    } catch (error) {
      this.fail(error.message);
    }
  }
}

// The units that an event about the request's progress tells of.
function unitsOfProgress({ name, payload }, explanation) {
  if (name !== "request.progress" || !payload.steps) return [];
  return explanation.units.filter((unit) => unit.node_id === payload.node_id && unit.step_range.stop === payload.step).map((unit) => unit.unit_id);
}

function facts({ spec, metrics, latents_digest: latents, expires_at: expiry, expired_at: expired }) {
  const { sampling } = spec;
  const told = [
    ["size", sampling.width ? `${sampling.width} × ${sampling.height}` : ""],
    ["frames", sampling.num_frames ? `${sampling.num_frames} at ${sampling.fps} fps` : ""],
    ["steps", sampling.steps || ""],
    ["guidance", sampling.guidance_scale || ""],
    ["seed", sampling.seed],
    ["sampler", sampling.sampler],
    ["priority", spec.priority || ""],
    ["session", spec.session_id],
    ["attempts", metrics && metrics.attempts > 1 ? metrics.attempts : ""],
    [expired ? "expired" : "kept until", expiry ? moment(expiry) : ""],
    ["latents", latents ? `${latents.slice(0, 12)}…` : ""],
  ];
  return told.filter(([, value]) => value !== "" && value !== null && value !== undefined).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { class: name === "latents" ? "mono" : null, title: name === "latents" ? latents : null }, String(value))));
}
