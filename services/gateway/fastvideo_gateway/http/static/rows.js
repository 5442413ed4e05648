// A list of any length of which only the lines in sight exist.

import { el } from "./dom.js";

const BEYOND = 6;

export class Rows {
  // `make()` makes an element; `fill(element, index)` makes it show a line and returns whether it
  // could; `chosen(index)` is called when the user picks a line.
  constructor(box, { height, make, fill, chosen, moved = () => {} }) {
    this.box = box;
    this.height = height;
    this.make = make;
    this.fill = fill;
    this.chosen = chosen;
    this.count = 0;
    this.selected = -1;
    this.shown = new Map();
    this.free = [];
    this.spacer = el("div", { class: "spacer", role: "presentation" });
    box.replaceChildren(this.spacer);
    this.pending = false;
    box.addEventListener("scroll", () => {
      moved();
      this.ask();
    }, { passive: true });
    box.addEventListener("click", (event) => {
      const row = event.target.closest("[data-index]");
      if (row) this.chosen(Number(row.dataset.index));
    });
    new ResizeObserver(() => this.ask()).observe(box);
  }

  setCount(count) {
    if (count !== this.count) {
      this.count = count;
      this.spacer.style.height = `${count * this.height}px`;
    }
    this.ask();
  }

  // Draw at the next frame, once however often it is asked.
  ask() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.draw();
    });
  }

  range() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.height) - BEYOND);
    const last = Math.min(this.count, Math.ceil((this.box.scrollTop + this.box.clientHeight) / this.height) + BEYOND);
    return [first, last];
  }

  draw() {
    const [first, last] = this.range();
    for (const [index, row] of this.shown) {
      if (index < first || index >= last) {
        this.shown.delete(index);
        row.hidden = true;
        this.free.push(row);
      }
    }
    for (let index = first; index < last; index += 1) {
      let row = this.shown.get(index);
      if (!row) {
        row = this.free.pop() ?? this.add();
        row.hidden = false;
        row.dataset.index = index;
        row.id = `${this.box.id}-${index}`;
        row.style.transform = `translateY(${index * this.height}px)`;
        row.setAttribute("aria-posinset", index + 1);
        this.shown.set(index, row);
      }
      row.setAttribute("aria-setsize", this.count);
      row.setAttribute("aria-selected", index === this.selected);
      this.fill(row, index);
    }
    if (this.shown.has(this.selected)) this.box.setAttribute("aria-activedescendant", `${this.box.id}-${this.selected}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  add() {
    const row = this.make();
    row.classList.add("row");
    row.setAttribute("role", "option");
    row.style.height = `${this.height}px`;
    this.spacer.append(row);
    return row;
  }

  select(index, { show = true } = {}) {
    this.selected = index;
    if (show && index >= 0) this.show(index);
    this.ask();
  }

  show(index) {
    const top = index * this.height;
    const { scrollTop, clientHeight } = this.box;
    const far = top < scrollTop - clientHeight || top > scrollTop + 2 * clientHeight;
    if (far) this.box.scrollTop = top - clientHeight / 2;
    else if (top < scrollTop) this.box.scrollTop = top;
    else if (top + this.height > scrollTop + clientHeight) this.box.scrollTop = top + this.height - clientHeight;
  }
}
