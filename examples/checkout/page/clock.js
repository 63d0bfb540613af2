// The service's time, from the Server-Time of its answers. The browser's own clock may be wrong by
// hours and may be set while the page is open, so nobody asks it: performance.now() only tells how
// long ago an answer came.

export class ServerClock {
  #least = -Infinity;
  #most = Infinity;

  /**
   * An answer stamped serverTime (epoch ms) was asked for at sentAt and came at receivedAt. The
   * stamp is of some moment in between: every answer narrows down how far the two clocks are apart.
   * One that contradicts the others wins, since a computer that slept has stopped its counter.
   */
  learn(serverTime, sentAt, receivedAt) {
    const least = serverTime - receivedAt;
    const most = serverTime - sentAt;
    const agrees = least <= this.#most && most >= this.#least;
    this.#least = agrees ? Math.max(least, this.#least) : least;
    this.#most = agrees ? Math.min(most, this.#most) : most;
  }

  /** Epoch ms, the latest that it can be: a countdown never shows time that is not left. */
  now() {
    return performance.now() + this.#most;
  }
}
