// Parts of the page by their ID. Only what changes is written, so that nothing is laid out or read
// out anew without a reason.

export function part(id) {
  return document.getElementById(id);
}

export function write(id, text) {
  if (part(id).textContent !== text) part(id).textContent = text;
}
