// The shop's own server, which is where this page comes from: payments, and coming and going.

import { read, Refusal, Unreachable } from "/page/service.js";

const TIMEOUT_MS = 15000;

/** This page, as long as it is open: a reload is another one. */
const page = String(crypto.getRandomValues(new Uint32Array(2)));

/** Where the service is, how long a seat is held, the rows of seats. */
export async function settings() {
  return read(await fetch("/hall"));
}

/** A payment that waits for the bank's word. */
export function pay(seat, holder) {
  return post("/payments", { seat, holder });
}

/** The bank's yes, which the bank itself would say in real life; the payment with its outcome. */
export function approve(payment) {
  return post(`/payments/${payment.paymentId}/approve`);
}

export function decline(payment) {
  return post(`/payments/${payment.paymentId}/decline`);
}

/** Whatever an earlier page of this tab has left is kept. */
export function arrive(holder) {
  send("/visits/arrive", { holder, page }).catch(() => {});
}

/**
 * This page goes; keepalive lets the request outlive it. It may be a reload, which nobody can tell
 * at this moment, so nothing is released here: the shop does it if no page arrives soon.
 */
export function leave(holder, hold) {
  send("/visits/leave", { holder, page, hold }, { keepalive: true }).catch(() => {});
}

async function post(path, body = {}) {
  try {
    return await read(await send(path, body, { signal: AbortSignal.timeout(TIMEOUT_MS) }));
  } catch (error) {
    throw error instanceof Refusal ? error : new Unreachable();
  }
}

function send(path, body, options) {
  const headers = { "Content-Type": "application/json" };
  return fetch(path, { method: "POST", headers, body: JSON.stringify(body), ...options });
}
