// Starts the page: token, connection, address, and which view is shown.

import { Header } from "./views/header.js";
import { ChatView } from "./views/chat.js";
import { ChatsView } from "./views/chats.js";
import { Gate } from "./views/gate.js";
import { RunView } from "./views/run.js";
import { RunsView } from "./views/runs.js";
import { isShortcut, shortcuts } from "./views/shortcuts.js";
import { StartView } from "./views/start.js";
import { applyTheme } from "./views/theme.js";
import { UsageView } from "./views/usage.js";
import { Desk } from "./desk.js";
import { adopt, read } from "./token.js";
import { Wire } from "./wire.js";

applyTheme();
const base = new URL(".", location.href);
const address = new URL("ws", base);
address.protocol = base.protocol === "https:" ? "wss:" : "ws:";

/** Whether the server is there at all: a refused handshake tells a page nothing else. */
async function reachable() {
  try {
    const answer = await fetch(base, { cache: "no-store", credentials: "omit" });
    return answer.ok;
  } catch {
    return false;
  }
}

const wire = new Wire(address.href, { reachable });
const desk = new Desk(wire, (text) => navigator.clipboard.writeText(text));
const main = document.getElementById("main");
const header = new Header(document.getElementById("top"), wire);
let view = null;
const NAMES = { start: "New run", usage: "Usage", chats: "Chats" };
const gate = new Gate(wire, () => view?.ended ?? null);

function route() {
  if (adopt(location, history, sessionStorage)) wire.use(read(sessionStorage));
  const [place, id, more] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  view?.close();
  const one = place === "run" || place === "chat";
  header.place(one ? id : (NAMES[place] ?? ""));
  main.classList.toggle("wide", one);
  if (place === "run" && id) view = new RunView(wire, id);
  else if (place === "chat" && id) view = new ChatView(wire, desk, id);
  else if (place === "chats") view = new ChatsView(wire, desk);
  else if (place === "start") view = new StartView(wire);
  else if (place === "usage") view = new UsageView(wire, id, more);
  else view = new RunsView(wire);
  main.replaceChildren(gate.element, view.element);
  view.focus?.();
}

addEventListener("keydown", (event) => {
  if (!isShortcut(event)) return;
  const place = { r: "#/", n: "#/start", c: "#/chats", u: "#/usage" }[event.key];
  if (!place && event.key !== "?") return;
  event.preventDefault();
  if (place) location.hash = place;
  else shortcuts();
});
addEventListener("hashchange", (event) => {
  if (location.hash === "#main") {
    history.replaceState(null, "", new URL(event.oldURL).hash || "#/");
    main.focus();
  } else route();
});
route();
if (wire.state === "none") wire.use(read(sessionStorage));
