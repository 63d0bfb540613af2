// What this tab knows about itself, and keeps over a reload: who it is, what it holds, what it has
// bought. The holder is a secret of 128 random bits. Whoever has it owns the hold, so it lives in
// sessionStorage, which is this tab's alone and ends with it.

const KEY = "checkout";

export class Session {
  #known = { holder: randomHolder(), held: null, bought: [] };

  constructor() {
    try {
      this.#known = { ...this.#known, ...JSON.parse(sessionStorage.getItem(KEY)) };
    } catch {
      // No storage, no memory: a reload then starts anew, and the old hold frees itself.
    }
    this.#save();
  }

  get holder() {
    return this.#known.holder;
  }

  /** { seat, generation } of the hold, or null; the generation tells it from everybody else's. */
  get held() {
    return this.#known.held;
  }

  /** The reservation as the service answered it. */
  hold(reservation) {
    const { reservationId: seat, generation } = reservation;
    this.#known.held = { seat, generation };
    this.#save();
  }

  letGo() {
    this.#known.held = null;
    this.#save();
  }

  buy(seat) {
    if (!this.hasBought(seat)) this.#known.bought.push(seat);
    this.letGo();
  }

  hasBought(seat) {
    return this.#known.bought.includes(seat);
  }

  #save() {
    try {
      sessionStorage.setItem(KEY, JSON.stringify(this.#known));
    } catch {
      // As above.
    }
  }
}

function randomHolder() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
