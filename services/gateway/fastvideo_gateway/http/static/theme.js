// Light or dark: what the system says, or what was chosen here.

const CHOICES = ["auto", "light", "dark"];
const KEY = "fastvideo.theme";

function stored() {
  try {
    return localStorage.getItem(KEY) ?? "auto";
  } catch {
    return "auto"; // A browser may forbid it; then the choice lasts as long as the page.
  }
}

let chosen = CHOICES.includes(stored()) ? stored() : "auto";

function apply() {
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

export function themeName() {
  return chosen;
}

export function nextTheme() {
  chosen = CHOICES[(CHOICES.indexOf(chosen) + 1) % CHOICES.length];
  try {
    localStorage.setItem(KEY, chosen);
  } catch {
    // As above.
  }
  apply();
  window.dispatchEvent(new Event("themechange"));
  return chosen;
}

apply();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  window.dispatchEvent(new Event("themechange")),
);
