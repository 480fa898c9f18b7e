// The official ACP SDK (@agentclientprotocol/sdk from npm) drives `callboard acp`; what it has seen is one JSON object.
//
// node acp_client.mjs NODE_DIR CALLBOARD CONFIG_DIR AGENT CWD MCP_COMMAND [MCP_ARGUMENT...]

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [place, callboard, configDir, agentName, cwd, command, ...args] = process.argv.slice(2);
const require = createRequire(`${place}/package.json`);
const acp = await import(pathToFileURL(require.resolve("@agentclientprotocol/sdk")));
const { agent: to } = acp.methods;

const complained = [];
console.warn = console.error = (...words) => complained.push(words.map(String).join(" "));

const child = spawn(callboard, ["acp", agentName], {
  cwd, env: { ...process.env, CALLBOARD_CONFIG_DIR: configDir }, stdio: ["pipe", "pipe", "inherit"],
});
let updates = [];
const permissions = [];
const forms = [];
let onUpdate = () => {};
let permit = () => ({ outcome: "selected", optionId: "yes" });

const app = acp.client({ name: "editor" })
  .onRequest(acp.methods.client.session.requestPermission, async ({ params }) => {
    permissions.push({ title: params.toolCall.title, kinds: params.options.map((each) => each.kind) });
    return { outcome: await permit() };
  })
  .onRequest(acp.methods.client.elicitation.create, ({ params }) => {
    forms.push(params.message);
    return { action: "accept", content: { answer: "blue" } };
  })
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    updates.push(params.update);
    onUpdate(params.update);
  });

const kinds = () => [...new Set(updates.map((each) => each.sessionUpdate))];
const text = (kind) => updates.filter((each) => each.sessionUpdate === kind).map((each) => each.content.text ?? "").join("");
const words = (said) => [{ type: "text", text: said }];
const told = {};

/** Notifications are handled a moment after the answer that came behind them, but before that of another request. */
const settled = () => agent.request(to.session.list, {});

const connection = app.connect(acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)));
const { agent } = connection;
const hello = await agent.request(to.initialize, {
  protocolVersion: acp.PROTOCOL_VERSION,
  clientCapabilities: { elicitation: { form: {} }, session: { notices: {} } },
  clientInfo: { name: "editor", version: "1" },
});
told.hello = [hello.protocolVersion, hello.agentInfo.name, hello.agentCapabilities.promptCapabilities.image];
const mcpServers = [{ name: "tools", command, args, env: [] }];
const made = await agent.request(to.session.new, { cwd, mcpServers });
const { sessionId } = made;

const image = { type: "image", mimeType: "image/png", data: Buffer.from("a picture").toString("base64") };
told.first = (await agent.request(to.session.prompt, { sessionId, prompt: [...words("write it"), image] })).stopReason;
await settled();
told.kinds = kinds();
told.text = text("agent_message_chunk");
told.permissions = permissions.slice();
told.forms = forms;
told.notices = updates.filter((each) => each.sessionUpdate === "notice").map(({ severity, title }) => [severity, title]);
told.usage = updates.filter((each) => each.sessionUpdate === "usage_update").map(({ used, size }) => [used, size]);
told.titles = updates.filter((each) => each.sessionUpdate === "session_info_update").map((each) => each.title);

// Cancelled in the middle of its words; the editor's permission that is open at the time is cancelled, too.
const slow = new Promise((resolve) => {
  onUpdate = (update) => JSON.stringify(update).includes("slowly") && resolve();
});
const speaking = agent.request(to.session.prompt, { sessionId, prompt: words("go slowly") });
await slow;
await agent.notify(to.session.cancel, { sessionId });
told.cancelled = (await speaking).stopReason;

let dismiss;
const asked = new Promise((resolve) => {
  permit = () => new Promise((settle) => { dismiss = () => settle({ outcome: "cancelled" }); resolve(); });
});
const waiting = agent.request(to.session.prompt, { sessionId, prompt: words("write again") });
await asked;
await agent.notify(to.session.cancel, { sessionId });
dismiss();
told.dismissed = (await waiting).stopReason;

updates = [];
const loaded = await agent.request(to.session.load, { sessionId, cwd, mcpServers: [] });
await settled();
told.loaded = [loaded.modes.currentModeId, kinds(), text("user_message_chunk")];
updates = [];
await agent.request(to.session.resume, { sessionId, cwd, mcpServers: [] });
await settled();
told.resumed = updates.length;
told.listed = (await agent.request(to.session.list, {})).sessions.map((each) => [each.sessionId === sessionId, each.cwd === cwd]);
await agent.request(to.session.setMode, { sessionId, modeId: "yes" });
const set = await agent.request(to.session.setConfigOption, { sessionId, configId: "model", value: "fake:other" });
told.model = set.configOptions[0].currentValue;
told.refused = await agent.request(to.session.prompt, { sessionId: "no-such", prompt: words("x") }).catch((error) => error.code);
await agent.request(to.session.close, { sessionId });
await agent.request(to.session.delete, { sessionId });
told.left = (await agent.request(to.session.list, {})).sessions.length;
told.complained = complained.slice();

child.stdin.end();
[told.exit] = await once(child, "exit");
console.log(JSON.stringify(told));
process.exit(0);
