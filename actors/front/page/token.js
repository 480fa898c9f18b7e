// The token: it comes in the fragment of the address, which is never sent, and stays in this tab alone.

const KEY = "callboard.token";

/** Take the token out of the address, if there is one, and remember it for this tab; what is left leads to the run or
 *  the chat. */
export function adopt(location, history, storage) {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const given = fragment.get("token");
  if (given === null) return false;
  storage.setItem(KEY, given.trim());
  const kind = ["run", "chat"].find((name) => fragment.get(name));
  const place = kind ? `${kind}/${encodeURIComponent(fragment.get(kind))}` : "";
  history.replaceState(null, "", `${location.pathname}${location.search}#/${place}`);
  return true;
}

export function read(storage) {
  return storage.getItem(KEY) ?? "";
}

export function keep(storage, token) {
  storage.setItem(KEY, token.trim());
}

/** The subprotocols to offer: browsers can't set headers on a websocket. */
export function protocols(token) {
  const bytes = new TextEncoder().encode(token);
  const text = btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replace(/=+$/, "");
  return ["callboard.v1", `bearer.${text}`];
}
