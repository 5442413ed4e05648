// Numbers and times for people.

export function parseJson(text) {
  // A whole number that a double cannot hold stays the text that it was, such as a seed.
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source
      ? context.source
      : value,
  );
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds >= 100) return `${seconds.toFixed(0)} s`;
  if (seconds >= 10) return `${seconds.toFixed(1)} s`;
  if (seconds >= 0.1) return `${seconds.toFixed(2)} s`;
  return seconds >= 0.01 ? `${(seconds * 1000).toFixed(0)} ms` : `${(seconds * 1000).toFixed(1)} ms`;
}

// Seconds since the epoch, to the microsecond that Date would drop.
export function secondsOf(iso) {
  const micros = /\.(\d{3})(\d{1,3})/.exec(iso)?.[2] ?? "";
  return Date.parse(iso) / 1000 + Number(micros.padEnd(3, "0")) / 1e6;
}

export function between(from, to) {
  return secondsOf(to) - secondsOf(from);
}

export function clock(iso) {
  return new Date(iso).toISOString().slice(11, 19);
}

export function moment(iso) {
  return `${iso.slice(0, 10)} ${iso.slice(11, 23)} UTC`;
}

export function ago(iso, now = Date.now()) {
  const seconds = Math.max(0, (now - Date.parse(iso)) / 1000);
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return iso.slice(0, 10);
}

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  if (count < 1e6) return `${(count / 1e3).toFixed(1)} kB`;
  if (count < 1e9) return `${(count / 1e6).toFixed(1)} MB`;
  return `${(count / 1e9).toFixed(2)} GB`;
}

export function count(number) {
  return number.toLocaleString("en-US");
}

export function words(name) {
  return name.replaceAll("_", " ");
}

export function shortId(id) {
  return `…${id.slice(-6)}`;
}

// The leaves of a record, as [path, value].
export function* leaves(value, path = "") {
  if (Array.isArray(value) && value.length) {
    for (const [index, inner] of value.entries()) yield* leaves(inner, path ? `${path}.${index}` : `${index}`);
  } else if (value && typeof value === "object" && Object.keys(value).length) {
    for (const [name, inner] of Object.entries(value)) yield* leaves(inner, path ? `${path}.${name}` : name);
  } else {
    yield [path, value];
  }
}

export function plain(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "object") return Array.isArray(value) ? "[]" : "{}";
  // More digits than that are of the way the number is written.
  if (typeof value === "number" && !Number.isInteger(value)) return String(Number(value.toPrecision(9)));
  return String(value);
}
