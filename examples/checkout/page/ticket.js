// The ticket beside the hall: what this tab has, what is left of it, and what can be done.

import { part, write } from "/page/dom.js";
import { leftMs, leftShare, minutes } from "/page/seats.js";

const TITLE = document.title;
const WARNINGS_S = [60, 30, 10];
const ACTIONS = ["pay", "again", "extend", "give-up", "look-again", "done"];

export class Ticket {
  #phase = null;
  #warned = Infinity;

  /** on[action]() is called when its button is pressed. */
  constructor(on) {
    for (const action of ACTIONS) part(action).addEventListener("click", on[action]);
  }

  /** { phase, title, text, actions: { id: label or true }, row, message }; row has the deadline. */
  render(view, now) {
    write("ticket-title", view.title);
    write("ticket-text", view.text);
    write("message", view.message?.text ?? "");
    part("message").classList.toggle("bad", view.message?.isBad ?? false);
    this.#enter(view);
    this.#offer(view.actions);
    this.#count(view, now);
    document.title = [view.row && minutes(leftMs(view.row, now)), TITLE].filter(Boolean).join(" · ");
  }

  focus() {
    part("ticket-title").focus();
  }

  /** What has changed is read out, wherever the focus is. */
  #enter({ phase, title, text }) {
    if (this.#phase !== null && this.#phase !== phase) write("spoken", `${title}. ${text}`);
    this.#phase = part("ticket").dataset.phase = phase;
  }

  /** A button that goes away under somebody's fingers hands the focus to the ticket's title. */
  #offer(actions) {
    const pressed = document.activeElement;
    for (const action of ACTIONS) {
      part(action).hidden = !(action in actions);
      if (typeof actions[action] === "string") write(action, actions[action]);
    }
    if (pressed?.hidden) this.focus();
  }

  #count({ row }, now) {
    part("countdown").hidden = part("left").hidden = !row;
    if (!row) return;
    write("time", minutes(leftMs(row, now)));
    part("left").value = leftShare(row, now);
    this.#warn(Math.ceil(leftMs(row, now) / 1000));
  }

  /** A timer is not read out; these few moments are. */
  #warn(seconds) {
    const passed = WARNINGS_S.filter((warning) => seconds <= warning).at(-1) ?? Infinity;
    if (passed < this.#warned && seconds > 0) write("spoken", `${seconds} seconds left.`);
    this.#warned = passed;
  }
}
