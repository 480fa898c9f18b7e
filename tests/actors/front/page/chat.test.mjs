// What the page knows of chats, and its Markdown, without a browser: run by test_model.py with node.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Desk } from "./page/desk.js";
import { ChatFollower } from "./page/follow_chat.js";
import { ChatState, History, lacking, nameOf } from "./page/model/chat.js";
import { blocks, inline, leadsOut } from "./page/model/markdown.js";
import { Wire } from "./page/wire.js";

const CHAT = "chat-1";
const INFO = { chat: CHAT, model: "a:b", run: null };
const soon = () => new Promise((resolve) => setTimeout(resolve, 5));

/** A wire and the sockets that it has made, the newest last. */
function connected() {
  const sockets = [];
  const make = () => {
    const socket = {
      sent: [],
      close() {},
      send: (text) => socket.sent.push(JSON.parse(text)),
      say: (frame) => socket.onmessage({ data: JSON.stringify({ jsonrpc: "2.0", ...frame }) }),
      tell: (method, params) => socket.say({ method, params }),
      async answer(method, result) {
        await soon();
        const asked = socket.sent.findLast((frame) => frame.method === method && !frame.done);
        asked.done = true;
        socket.say({ id: asked.id, ...result });
        await soon();
        return asked.params;
      },
    };
    sockets.push(socket);
    return socket;
  };
  const wire = new Wire("ws://x", { socket: make, reachable: async () => false });
  wire.use("t");
  sockets[0].onopen();
  return { wire, sockets };
}

async function following() {
  const { wire, sockets } = connected();
  const follower = new ChatFollower(wire, CHAT, { frame: (then) => setImmediate(then) });
  await sockets[0].answer("_server/info", { result: { scopes: ["*"] } });
  return { wire, sockets, follower };
}

const said = (seq, text = `${seq}`) => ({ chat: CHAT, kind: "text", text, seq });
const texts = (follower) => follower.state.items.filter((item) => item.type === "said").map((item) => item.text);

test("what is told while the answer to the watching is on its way comes behind it, and nothing comes twice", async () => {
  const { wire, sockets, follower } = await following();
  sockets[0].tell("_chat/said", said(3));
  sockets[0].tell("_chat/said", { ...said(4), chat: "chat-2" });
  const told = [{ said: said(1) }, { said: said(2) }, { said: said(3) }];
  assert.deepEqual(await sockets[0].answer("_chat/watch", { result: { chat: INFO, told } }), { chat: CHAT, after: 0 });
  sockets[0].tell("_chat/said", said(5));
  sockets[0].tell("_chat/said", said(4, "late"));
  sockets[0].tell("_chat/said", said(0, "for me alone"));
  sockets[0].tell("_chat/said", said(0, "for me alone"));
  assert.deepEqual(texts(follower), ["1", "2", "3", "5", "late", "for me alone", "for me alone"]);
  assert.equal(follower.state.last, 5);
  follower.close();
  wire.use("");
});

test("a lost connection and a lag go on from the last number, and a line whose answer was lost is told to be unsure", async () => {
  const { wire, sockets, follower } = await following();
  await sockets[0].answer("_chat/watch", { result: { chat: INFO, told: [{ said: said(7) }] } });
  const began = follower.send("first");
  const never = follower.send("second");
  await soon();
  sockets[0].onclose({});
  assert.deepEqual([await began, await never], [{}, {}]);
  wire.again();
  sockets[1].onopen();
  await sockets[1].answer("_server/info", { result: { scopes: ["*"] } });
  const told = [{ began: { chat: CHAT, run: "run-1", prompt: "first", seq: 8 } }];
  assert.equal((await sockets[1].answer("_chat/watch", { result: { chat: INFO, told } })).after, 7);
  const lines = follower.state.items.filter((item) => item.type === "line");
  assert.deepEqual(lines.map((item) => [item.text, item.state, item.shown]), [
    ["first", "done", false],
    ["second", "unsure", true],
  ]);
  sockets[1].tell("_chat/closed", { chat: CHAT, lagged: true });
  sockets[1].tell("_chat/said", said(9));
  assert.equal((await sockets[1].answer("_chat/watch", { result: { chat: INFO, told: [{ said: said(9) }] } })).after, 8);
  assert.deepEqual(texts(follower), ["7", "9"]);
  assert.equal(follower.state.closed, null);
  sockets[1].tell("_chat/closed", { chat: CHAT, lagged: false });
  assert.equal(follower.locked, "This chat has ended.");
  follower.close();
  wire.use("");
});

test("a line that was interrupted without a run says so, and one whose run is seen leaves that to the run", async () => {
  const { wire, sockets, follower } = await following();
  await sockets[0].answer("_chat/watch", { result: { chat: INFO, told: [] } });
  for (const [text, run] of [["never begun", null], ["begun", "run-1"]]) {
    const sent = follower.send(text);
    if (run) sockets[0].tell("_chat/began", { chat: CHAT, run, prompt: text, seq: 1 });
    await sockets[0].answer("_chat/line", { result: { chat: INFO, run, status: "cancelled" } });
    await sent;
  }
  const lines = follower.state.items.filter((item) => item.type === "line");
  assert.deepEqual(lines.map((item) => [item.text, item.state, item.shown]), [
    ["never begun", "interrupted", true],
    ["begun", "done", false],
  ]);
  follower.close();
  wire.use("");
});

test("a chat that is gone when the connection is back is told so, and what was told of it stays", async () => {
  const { wire, sockets, follower } = await following();
  await sockets[0].answer("_chat/watch", { result: { chat: INFO, told: [{ said: said(1) }] } });
  sockets[0].onclose({});
  wire.again();
  await soon();
  wire.again();
  sockets.at(-1).onopen();
  await sockets.at(-1).answer("_server/info", { result: { scopes: [] } });
  await sockets.at(-1).answer("_chat/watch", { error: { code: -32004, message: "no", data: { code: "not_found" } } });
  assert.deepEqual([follower.state.closed, follower.problem, texts(follower)], ["missing", null, ["1"]]);
  assert.match(follower.state.items.at(-1).text, /knows this chat no more/);
  follower.close();
  wire.use("");
});

test("a prompt gives its place to the run that answers it, a command stays above what it says", () => {
  const state = new ChatState(CHAT);
  state.changed(INFO);
  const prompt = state.sends(" ::: hello ::: ");
  state.began({ run: "run-1", prompt: "hello", seq: 1 });
  assert.deepEqual([prompt.shown, state.busy, state.info.run], [false, true, "run-1"]);
  state.began({ run: "run-1", prompt: "hello", seq: 1 });
  state.settled(prompt, "done");
  state.changed(INFO);
  assert.equal(state.busy, false);
  const command = state.sends(".info");
  state.said({ kind: "text", text: "model a:b", seq: 2 });
  state.settled(command, "done");
  assert.deepEqual(state.items.filter((item) => item.shown !== false).map((item) => item.type), ["run", "line", "said"]);
  state.settled(prompt, "failed", "over the limit");
  assert.equal(prompt.shown, true);
});

test("the scopes that a token lacks are named, and one that may all lacks none", () => {
  assert.deepEqual(lacking(["read:runs"], ["run:agents", "read:runs"]), ["run:agents"]);
  assert.deepEqual(lacking(["*"], ["run:agents"]), []);
  assert.equal(nameOf({ chat: CHAT, model: "a:b", agent: "coder", title: null }), "coder");
});

test("the arrows bring back lines and what was being typed", () => {
  const history = new History();
  for (const line of ["one", "two", "two"]) history.add(line);
  assert.deepEqual([history.step(-1, "dra"), history.step(-1, "two"), history.step(-1, "one")], ["two", "one", null]);
  assert.deepEqual([history.step(1, "one"), history.step(1, "two"), history.step(1, "dra")], ["two", "dra", null]);
});

test("what the server asks is answered or declined, and is gone when it is taken back or the connection goes", async () => {
  const { wire, sockets } = connected();
  const desk = new Desk(wire, async () => {
    throw new Error("the browser does not let this page write to the clipboard");
  });
  const [socket] = sockets;
  const answers = (id) => socket.sent.find((frame) => frame.id === id && !frame.method);
  const ask = (id) => socket.say({ id, method: "_chat/ask", params: { chat: CHAT, text: "Sure?", kind: "confirm" } });
  ask("c1");
  ask("c2");
  socket.say({ id: "c3", method: "_chat/edit", params: { chat: CHAT, name: "role.md", text: "old" } });
  socket.say({ id: "c4", method: "_chat/copy", params: { chat: CHAT, text: "x" } });
  socket.say({ id: "c5", method: "_chat/dance", params: {} });
  await soon();
  const [first, second, edit] = [...desk.of(CHAT).keys()];
  assert.equal(desk.of("chat-2").size, 0);
  assert.equal(answers("c5").error.code, -32601);
  assert.match(answers("c4").error.message, /clipboard/);
  assert.equal(desk.answer(first, "yes"), true);
  assert.equal(desk.answer(edit, null), true);
  socket.tell("$/cancel_request", { requestId: "c2" });
  await soon();
  assert.equal(desk.answer(second, "yes"), false);
  assert.deepEqual([answers("c1").result, answers("c3").result], [{ value: "yes" }, { text: null }]);
  assert.equal(answers("c2").error.code, -32800);
  ask("c6");
  await soon();
  assert.equal(desk.of().size, 1);
  socket.onclose({});
  await soon();
  assert.equal(desk.of().size, 0);
  wire.use("");
});

const kinds = (text) => blocks(text).map((block) => block.type);

test("Markdown is the blocks that people mean", () => {
  assert.deepEqual(kinds("# T\n\ntext\nmore\n- a\n- b\n\n1. x\n2. y\n```js\na\n\nb\n```\n> q\n\n| a | b |\n|--|--:|\n| 1 | 2 |\n\n---"), [
    "heading", "paragraph", "list", "list", "code", "quote", "table", "rule",
  ]);
  const [list] = blocks("- a\n  - b\n  - c\n\n    more of c\n- d");
  assert.deepEqual(list.items.map((item) => item.map((block) => block.type)), [["paragraph", "list"], ["paragraph"]]);
  const [numbers] = blocks("3. x\n4. y");
  assert.deepEqual([numbers.start, numbers.items.length], [3, 2]);
  const [table] = blocks("a | `b|c`\n:-: | -\n1 | 2 | 3");
  assert.deepEqual([table.head, table.align, table.rows], [["a", "`b|c`"], ["center", "left"], [["1", "2"]]]);
  assert.deepEqual(blocks("```py\nopen"), [{ type: "code", lang: "py", text: "open", at: 0 }]);
});

test("what stands in a block is emphasis, code and links that lead out; all else is text", () => {
  const tags = (text) => inline(text).map((node) => (typeof node === "string" ? node : `<${node.tag}>`)).join("");
  assert.equal(tags("a **b** *c* `d*` ~~e~~ snake_case_name 2 * 3 * 4"), "a <strong> <em> <code> <del> snake_case_name 2 * 3 * 4");
  assert.deepEqual(inline("***x***"), [{ tag: "strong", children: [{ tag: "em", children: ["x"] }] }]);
  assert.deepEqual(inline("[x](https://e.org/a_(b))"), [{ tag: "a", href: "https://e.org/a_(b)", children: ["x"] }]);
  assert.deepEqual(inline("see https://e.org/x.").map((node) => node.href ?? node), ["see ", "https://e.org/x", "."]);
  for (const text of ["[x](javascript:alert(1))", "<img src=x onerror=alert(1)>", "[x](data:text/html,x)", "**open", "[a"])
    assert.deepEqual(inline(text), [text]);
  assert.deepEqual([leadsOut("https://e.org"), leadsOut("javascript:1"), leadsOut("//e.org"), leadsOut("#/run/1")], [true, false, false, false]);
});

test("no text takes longer than its length says", () => {
  const hard = ["*", "_", "[", "`", "~", "<", ">", "|", "#", "**a ", "*a_", "[a](", "`` ` ", "](", "> ", "- a\n\n\n", "a|b\n-|-\n", "h", " "];
  const all = (found) => {
    for (const block of found) {
      if (block.text !== undefined && block.type !== "code") inline(block.text);
      if (block.blocks) all(block.blocks);
      for (const item of block.items ?? []) all(item);
      for (const row of block.rows ?? []) row.forEach(inline);
    }
  };
  for (const piece of hard) {
    const began = performance.now();
    all(blocks(`${piece.repeat(60000 / piece.length)}x`));
    assert.ok(performance.now() - began < 3000, piece);
  }
});
