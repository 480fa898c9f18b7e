// How elements are made. Text is only ever set as text: what models and tools say is a stranger's.

const SVG = "http://www.w3.org/2000/svg";

/** h("button", {class: "quiet", onclick: f, "aria-label": "Close"}, "x") */
export function h(tag, given = {}, ...children) {
  return fill(document.createElement(tag), given, children);
}

/** The same for SVG. */
export function s(tag, given = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), given, children);
}

function fill(element, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Set the text of an element if it is another one. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set an attribute if it differs; null takes it away. */
export function mark(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/** Ask before something that can't be taken back. Resolves to whether it is wanted. */
export function confirmed({ title, text, yes, no = "Keep it" }) {
  return new Promise((resolve) => {
    const stay = h("button", { type: "button", class: "quiet", onclick: () => dialog.close("no") }, no);
    const go = h("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, yes);
    const dialog = h(
      "dialog",
      { class: "ask", "aria-label": title },
      h("h2", {}, title),
      h("p", {}, text),
      h("div", { class: "actions" }, stay, go),
    );
    const before = document.activeElement;
    dialog.addEventListener("close", () => {
      dialog.remove();
      before?.focus?.();
      resolve(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
    stay.focus();
  });
}

let toasts = null;

/** Tell something in passing; an error stays until it is put away. */
export function tell(text, level = "info") {
  toasts ??= document.body.appendChild(h("div", { class: "toasts", role: "status", "aria-live": "polite" }));
  const note = h("div", { class: `toast ${level}` }, h("span", {}, text));
  note.append(h("button", { class: "quiet small", "aria-label": "Dismiss", onclick: () => note.remove() }, "\u00d7"));
  toasts.append(note);
  if (level === "info") setTimeout(() => note.remove(), 5000);
  while (toasts.children.length > 4) toasts.firstChild.remove();
}
