// The bank's question. It stays for as long as somebody likes, also beyond the end of the hold: the
// bank knows nothing of that.

import { part, write } from "/page/dom.js";

export class Bank {
  #dialog = part("bank");

  constructor({ onApprove, onDecline }) {
    part("approve").addEventListener("click", onApprove);
    part("decline").addEventListener("click", onDecline);
    this.#dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      onDecline();
    });
  }

  /** { title, text }, or null when nothing is asked. */
  render(question) {
    if (!question) return this.#dialog.close();
    write("bank-title", question.title);
    write("bank-text", question.text);
    if (!this.#dialog.open) this.#dialog.showModal();
  }
}
