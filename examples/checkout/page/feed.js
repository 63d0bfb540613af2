// The seats as they are, told as soon as they change. The service's events say which seats have
// changed, and those are asked for: an answer has all that a seat shows, and Server-Time. When the
// stream is not to be had (the service has readers enough), all seats are asked for once a second.

const TYPES = ["held", "renewed", "extended", "confirmed", "released", "expired"];
const EVERY_MS = 1000;
const AGAIN_MS = 5000;
const PAUSE_CAP_MS = 8000;

export class LiveFeed {
  #service;
  #seats;
  #onRows;
  #onTrouble;
  #source = null;
  #polling = 0;
  #changed = new Set();
  #isAsking = false;
  #asking = new AbortController();
  #pauseMs = EVERY_MS;
  #wake = () => {};

  /** onRows(rows) is called with whatever has changed, onTrouble(error) while there is no news. */
  constructor(service, seats, { onRows, onTrouble }) {
    this.#service = service;
    this.#seats = seats;
    this.#onRows = onRows;
    this.#onTrouble = onTrouble;
  }

  start() {
    if (!this.#source) this.#listen();
  }

  /** Ask for all, now. An answer under way is dropped: it may be older than what the page knows. */
  refresh() {
    if (this.#source?.readyState === EventSource.CLOSED) this.#listen();
    this.#asking.abort();
    this.#wake();
    this.#ask(this.#seats);
  }

  stop() {
    this.#source?.close();
    this.#source = null;
    this.#changed.clear();
    this.#asking.abort();
    this.#poll(false);
  }

  #listen() {
    this.#source?.close();
    const source = this.#service.events(this.#seats);
    this.#source = source;
    source.onopen = () => (this.#poll(false), this.#ask(this.#seats));
    source.onerror = () => this.#lose(source);
    source.addEventListener("reset", () => this.#ask(this.#seats));
    for (const type of TYPES) {
      source.addEventListener(type, (event) => this.#ask([JSON.parse(event.data).reservation]));
    }
  }

  /** While the browser tries again by itself, asking tells what is wrong; else we have to try. */
  #lose(source) {
    if (source !== this.#source) return;
    this.#ask(this.#seats);
    if (source.readyState !== EventSource.CLOSED) return;
    this.#poll(true);
    setTimeout(() => source === this.#source && this.#listen(), AGAIN_MS);
  }

  #poll(isNeeded) {
    clearInterval(this.#polling);
    if (isNeeded) this.#polling = setInterval(() => this.#ask(this.#seats), EVERY_MS);
  }

  /** What changes while an answer is under way is asked for together, afterwards. */
  async #ask(seats) {
    for (const seat of seats) this.#changed.add(seat);
    if (this.#isAsking) return;
    this.#isAsking = true;
    while (this.#changed.size > 0) await this.#askOnce([...this.#changed]);
    this.#isAsking = false;
  }

  async #askOnce(seats) {
    this.#asking = new AbortController();
    const { signal } = this.#asking;
    this.#changed.clear();
    try {
      const rows = await this.#service.seats(seats, signal);
      signal.throwIfAborted();
      this.#pauseMs = EVERY_MS;
      this.#onRows(rows);
    } catch (error) {
      if (signal.aborted) return; // whoever has dropped it asks anew
      for (const seat of seats) this.#changed.add(seat);
      this.#onTrouble(error);
      await this.#pause();
    }
  }

  #pause() {
    return new Promise((resume) => {
      const timer = setTimeout(resume, this.#pauseMs);
      this.#pauseMs = Math.min(2 * this.#pauseMs, PAUSE_CAP_MS);
      this.#wake = () => (clearTimeout(timer), resume());
    });
  }
}
