// The seats as a grid of buttons. Tab enters it once, arrow keys walk, Enter chooses. What a seat
// is stands in its name and in its shape, not in its colour alone.

import { leftMs, leftShare, minutes, short, stateOf } from "/page/seats.js";

const SAYS = {
  free: () => "free",
  mine: () => "held for you",
  held: (row, now) => `held by somebody else, ${minutes(leftMs(row, now))} left`,
  sold: () => "sold",
  bought: () => "yours, paid",
  late: () => "free again, your time is up",
};

const SHOWS = {
  held: (row, now) => short(leftMs(row, now)),
  sold: () => "×",
  bought: () => "✓",
};

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

export class Hall {
  #grid;
  #buttons = [];
  #names = new Map();

  /** rows as the shop tells them; onChoose(seat) is called for whatever seat is chosen. */
  constructor(grid, rows, onChoose) {
    this.#grid = grid;
    grid.replaceChildren(...rows.map((row) => this.#row(row, onChoose)));
    grid.addEventListener("keydown", (event) => this.#walk(event));
    this.#buttons[0][0].tabIndex = 0;
  }

  /** "Row C, seat 4". */
  name(seat) {
    return this.#names.get(seat);
  }

  seats() {
    return [...this.#names.keys()];
  }

  render(rows, session, now) {
    for (const button of this.#buttons.flat()) {
      this.#show(button, rows.get(button.dataset.seat), session, now);
    }
    this.#grid.setAttribute("aria-busy", "false");
  }

  #show(button, row, session, now) {
    const state = stateOf(row, session, now);
    const isTimed = state === "held" || state === "mine";
    set(button, "data-state", state);
    set(button, "aria-label", `${this.name(row.reservationId)}, ${SAYS[state](row, now)}`);
    const glyph = SHOWS[state]?.(row, now) ?? button.dataset.number;
    if (button.textContent !== glyph) button.textContent = glyph;
    button.style.setProperty("--left", isTimed ? leftShare(row, now).toFixed(2) : "0");
  }

  #row({ name, seats }, onChoose) {
    const row = element("div", { role: "row", class: "row" });
    const header = element("span", { role: "rowheader", class: "row-name" }, name);
    this.#buttons.push(seats.map(({ id, number }) => this.#button(id, name, number, onChoose)));
    row.append(header, ...this.#buttons.at(-1).map(cell));
    return row;
  }

  #button(id, row, number, onChoose) {
    this.#names.set(id, `Row ${row}, seat ${number}`);
    const button = element("button", { type: "button", class: "seat", tabindex: "-1" }, number);
    Object.assign(button.dataset, { seat: id, number });
    button.addEventListener("click", () => onChoose(id));
    button.addEventListener("focus", () => this.#enter(button));
    return button;
  }

  /** One seat of the grid is in the order of Tab: the one that was there last. */
  #enter(button) {
    for (const other of this.#buttons.flat()) other.tabIndex = other === button ? 0 : -1;
  }

  #walk(event) {
    const row = this.#buttons.findIndex((buttons) => buttons.includes(event.target));
    if (row < 0 || !(event.key in STEPS)) return;
    const [down, right] = STEPS[event.key];
    const column = this.#buttons[row].indexOf(event.target) + right;
    this.#buttons[row + down]?.[column]?.focus();
    event.preventDefault();
  }
}

function cell(button) {
  const gridcell = element("span", { role: "gridcell" });
  gridcell.append(button);
  return gridcell;
}

function element(kind, attributes, text = "") {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

/** Only what changes is written: the rest of the page need not be laid out anew. */
function set(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}
