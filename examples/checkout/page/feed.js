// The seats as they are, told again and again. This one asks once a second. A live feed of events
// takes its place by having the same three methods: start, refresh, stop; and by calling
// onRows(rows) with whatever rows have changed, and onTrouble(error) while it is cut off.

const EVERY_MS = 1000;
const PAUSE_CAP_MS = 8000;

export class PollingFeed {
  #read;
  #onRows;
  #onTrouble;
  #pauseMs = EVERY_MS;
  #isRunning = false;
  #asking = new AbortController();
  #wake = () => {};

  /** read(signal) fetches the rows. */
  constructor(read, { onRows, onTrouble }) {
    this.#read = read;
    this.#onRows = onRows;
    this.#onTrouble = onTrouble;
  }

  start() {
    if (this.#isRunning) return;
    this.#isRunning = true;
    this.#run();
  }

  /** Ask now. An answer that is under way is dropped: it may be older than what the page knows. */
  refresh() {
    this.#asking.abort();
    this.#wake();
  }

  stop() {
    this.#isRunning = false;
    this.refresh();
  }

  async #run() {
    while (this.#isRunning) {
      this.#asking = new AbortController();
      if (await this.#ask(this.#asking.signal)) await this.#pause();
    }
  }

  /** Whether it is time for a pause; an answer that was dropped is asked for again at once. */
  async #ask(signal) {
    try {
      const rows = await this.#read(signal);
      if (signal.aborted) return false;
      this.#pauseMs = EVERY_MS;
      this.#onRows(rows);
    } catch (error) {
      if (signal.aborted) return false;
      this.#pauseMs = Math.min(2 * this.#pauseMs, PAUSE_CAP_MS);
      this.#onTrouble(error);
    }
    return true;
  }

  #pause() {
    return new Promise((resume) => {
      const timer = setTimeout(resume, this.#pauseMs);
      this.#wake = () => (clearTimeout(timer), resume());
    });
  }
}
