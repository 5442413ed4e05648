// The page put together: where it is, what the keys do, and what the gateway tells as it happens.

import { follow, get } from "./api.js";
import { byId, el, setText } from "./dom.js";
import { comeIn } from "./login.js";
import { RequestList } from "./request-list.js";
import { RequestView } from "./request-view.js";
import { nextTheme, themeName } from "./theme.js";

const SEARCH_PAUSE_MS = 180;
const FOLLOW_MS = 1000;

const view = new RequestView(onVersion);
const list = new RequestList((id) => go(id));

function address() {
  const found = /^\/requests\/([^/]+)$/.exec(location.pathname);
  const version = Math.trunc(Number(new URLSearchParams(location.search).get("event")));
  return { id: found ? decoded(found[1]) : "", version: version > 0 ? version : 0 };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // No id is written so; that it does not exist is said like of any other.
  }
}

function go(id) {
  const path = id ? `/requests/${encodeURIComponent(id)}` : "/";
  if (location.pathname !== path) history.pushState(null, "", path);
  arrive();
}

function arrive() {
  const { id, version } = address();
  byId("main").dataset.open = id ? "request" : "list";
  byId("back").hidden = !id;
  list.mark(id);
  if (id === view.id) return;
  if (id) view.open(id, version);
  else {
    view.close();
    document.title = "FastVideo";
  }
}

function onVersion(version) {
  const wanted = version ? `?event=${version}` : "";
  if (location.search !== wanted && address().id) history.replaceState(null, "", location.pathname + wanted);
}

function showTheme() {
  const name = themeName();
  byId("theme").setAttribute("aria-label", `Colours: ${name === "auto" ? "automatic" : name}`);
  setText(byId("theme"), { auto: "◐", light: "☼", dark: "☾" }[name]);
}

function changeTheme() {
  nextTheme();
  showTheme();
}

function escape() {
  const search = byId("search");
  if (byId("help").open) byId("help").close();
  else if (search.value && document.activeElement === search) {
    search.value = "";
    list.load();
  } else if (address().id) {
    go("");
    byId("requests").focus();
  } else document.activeElement?.blur();
}

const inEvents = () => document.activeElement?.id === "events";

function up(by) {
  if (inEvents()) view.past.go(view.past.index + by);
  else list.move(by);
}

const KEYS = {
  "/": () => {
    // Where one thing is shown at a time, the list comes first.
    if (!byId("search").checkVisibility()) go("");
    byId("search").focus();
  },
  j: () => up(1),
  k: () => up(-1),
  ArrowDown: () => up(1),
  ArrowUp: () => up(-1),
  Enter: () => list.openAt(),
  ArrowLeft: (event) => view.id && view.past.go(view.past.index - (event.shiftKey ? 10 : 1)),
  ArrowRight: (event) => view.id && view.past.go(view.past.index + (event.shiftKey ? 10 : 1)),
  Home: () => (view.id ? view.past.go(0) : list.move(-list.items.length)),
  End: () => (view.id ? view.past.go(view.past.length - 1) : list.move(list.items.length)),
  r: () => {
    if (!view.id) return;
    byId("replay").scrollIntoView({ block: "nearest" });
    byId("replay-start").focus();
  },
  0: () => view.timeline.whole(),
  t: changeTheme,
  "?": () => byId("help").showModal(),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape") return byId("help").open ? undefined : escape();
  if (byId("help").open) return;
  const at = event.target;
  if (at === byId("search")) {
    if (event.key === "Enter" || event.key === "ArrowDown") {
      event.preventDefault();
      byId("requests").focus();
      if (event.key === "Enter") list.openAt();
    }
    return;
  }
  if (at.matches("select, textarea, video")) return;
  if (at.matches('input[type="radio"]') && event.key.startsWith("Arrow")) return;
  // Buttons and links have Enter for themselves, a range its own keys.
  if (event.key === "Enter" && at.matches("button, a, input")) return;
  if (at.matches('input[type="range"]') && /^(Arrow|Home|End)/.test(event.key)) return;
  if (/^(ArrowUp|ArrowDown|Home|End)$/.test(event.key) && at.matches(".leaves, #comparisons")) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act(event);
}

function listen() {
  let soon = 0;
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("input", () => {
    clearTimeout(soon);
    soon = setTimeout(() => list.load(), SEARCH_PAUSE_MS);
  });
  byId("theme").addEventListener("click", changeTheme);
  byId("help-open").addEventListener("click", () => byId("help").showModal());
  byId("back").addEventListener("click", () => go(""));
  byId("home").addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go("");
  });
  window.addEventListener("popstate", arrive);
}

function onLive(state) {
  byId("live").dataset.state = state;
  setText(byId("live-text"), { on: "live", lost: "connection lost", off: "paused" }[state]);
  // What was missed meanwhile.
  if (state === "on" && onLive.before && onLive.before !== "on") {
    if (byId("requests").scrollTop < 58) list.load();
    if (view.id) view.refreshSoon(0);
  }
  onLive.before = state;
}

function onChanges({ requests }) {
  list.take(requests);
  const open = requests.find((one) => one.request_id === view.id);
  if (open) view.take(open);
}

async function loadModels() {
  try {
    const { models } = await get("/api/models");
    byId("model").append(...models.map((one) => el("option", { value: one.model_id }, one.ready ? one.model_id : `${one.model_id} (no worker)`)));
  } catch {
    // The list does without the choice of models.
  }
}

async function begin() {
  await comeIn(() => onLive("lost"));
  // Not before: Escape pressed twice closes the question for the key for a moment, and is not for the page.
  document.addEventListener("keydown", onKey);
  loadModels();
  await followed();
  list.load();
  arrive();
}

// Before anything is read: nobody would tell of what comes between reading and following. Where the
// stream is late, what was missed is read again once it is there.
async function followed() {
  const told = new Promise((done) => {
    follow("/api/live", "requests", onChanges, (state) => {
      onLive(state);
      done();
    });
  });
  await Promise.race([told, new Promise((late) => setTimeout(late, FOLLOW_MS))]);
  onLive.before ??= "lost";
}

listen();
showTheme();
begin();
