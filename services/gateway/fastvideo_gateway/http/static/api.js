// Calls of the gateway's JSON API.

import { parseJson } from "./format.js";

export class ApiError extends Error {
  constructor(status, { reason, message, field }) {
    super(message);
    this.status = status;
    this.reason = reason;
    this.field = field;
  }
}

async function failed(response) {
  if (response.status === 401) document.dispatchEvent(new Event("signed-out"));
  try {
    return new ApiError(response.status, parseJson(await response.text()).error);
  } catch {
    return new ApiError(response.status, { reason: "UNREADABLE", message: `the gateway answered ${response.status}`, field: "" });
  }
}

export async function get(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  const address = query.size ? `${path}?${query}` : path;
  const response = await fetch(address, { signal, headers: { Accept: "application/json" } });
  if (!response.ok) throw await failed(response);
  return parseJson(await response.text());
}

// The answer of a POST; null when it says nothing.
export async function post(path, body = {}) {
  const response = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  if (!response.ok) throw await failed(response);
  const text = await response.text();
  return text ? parseJson(text) : null;
}

export const requestPath = (id) => `/api/requests/${encodeURIComponent(id)}`;
export const contentPath = (id) => `/api/artifacts/${encodeURIComponent(id)}/content`;

// The messages of a stream that a POST is answered with, as [event, value].
export async function* postStream(path, body, signal) {
  const response = await fetch(path, {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw await failed(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").filter((line) => !line.startsWith(":")).map((line) => {
        const at = line.indexOf(": ");
        return [line.slice(0, at), line.slice(at + 2)];
      }));
      if (fields.event) yield [fields.event, parseJson(fields.data)];
    }
  }
}

// Follow what changes while somebody looks; `onState` is told "on", "lost" or "off".
export function follow(path, event, onMessage, onState) {
  let source = null;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(path);
    source.addEventListener("open", () => onState("on"));
    source.addEventListener("error", () => {
      onState("lost");
      // A browser tries again by itself, unless it was refused.
      if (source?.readyState === EventSource.CLOSED) {
        source = null;
        // Nobody else says that the key has ended.
        get("/api/me").catch(() => {});
        setTimeout(open, 3000);
      }
    });
    source.addEventListener(event, (message) => onMessage(parseJson(message.data)));
  };
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) return open();
    source?.close();
    source = null;
    onState("off");
  });
  open();
}
