// Which nodes of the run's own graph are at work, and which lines were walked. Pure.

export class GraphState {
  constructor(run) {
    this.run = `/${run}`;
    this.path = null; // of the actor that is the graph; a run of a plain agent has none
    this.graphs = new Set(); // all of them, children's too
    this.nodes = new Map(); // id -> {running, visits, state, seconds, since, error, asked}
    this.walked = new Set(); // "from\nto"
    this.places = new Map(); // actor's path -> node it plays, until it has ended
    this.last = new Map(); // node -> path of the actor that played it last
    this.asked = new Map(); // question -> node
    this.version = 0;
  }

  apply(event) {
    HAPPENED[event.kind]?.(this, event.data, event);
  }

  at(id) {
    let node = this.nodes.get(id);
    if (!node)
      this.nodes.set(id, (node = { running: 0, visits: 0, state: "", seconds: 0, since: null, error: "", asked: 0 }));
    return node;
  }

  /** How a node is to be shown: "", running, waiting, done, failed, cancelled. */
  look(id) {
    const node = this.nodes.get(id);
    if (!node) return "";
    return node.asked > 0 ? "waiting" : node.running > 0 ? "running" : node.state;
  }

  /** Whether an actor belongs to the run's own graph and not to one below it. End nodes are played by the graph itself. */
  own(path) {
    for (let end = path.length; end > 0; end = path.lastIndexOf("/", end - 1)) {
      const above = path.slice(0, end);
      if (this.graphs.has(above)) return above === this.path;
    }
    return this.path === null;
  }

  enter(id, event, visit) {
    const node = this.at(id);
    node.running++;
    node.visits = Math.max(node.visits + (visit ? 0 : 1), visit ?? 0);
    node.since = event.ts;
    node.error = "";
    this.places.set(event.actor, id);
    this.last.set(id, event.actor);
    this.version++;
  }

  leave(path, state, error) {
    const id = this.places.get(path);
    if (id === undefined) return;
    this.places.delete(path);
    const node = this.at(id);
    node.running = Math.max(0, node.running - 1);
    node.state = state;
    node.error = error;
    this.version++;
  }

  /** The run is over; nodes that another process enters `again` have not been visited. */
  close(state, again = false) {
    if (again) for (const node of this.nodes.values()) node.visits -= node.running;
    for (const path of [...this.places.keys()]) this.leave(path, state, "");
    for (const node of this.nodes.values()) node.asked = 0;
    this.asked.clear();
    this.version++;
  }

  settle(id) {
    const node = this.asked.get(id);
    if (node === undefined) return;
    this.asked.delete(id);
    this.at(node).asked--;
    this.version++;
  }
}

const HAPPENED = {
  "graph.started": (graph, data, event) => {
    graph.graphs.add(event.actor);
    if (!data.depth) graph.path ??= event.actor;
  },
  "node.entered": (graph, data, event) => {
    if (graph.own(event.actor)) graph.enter(data.node, event, data.visit);
  },
  "node.exited": (graph, data, event) => {
    if (!graph.own(event.actor)) return;
    graph.at(data.node).seconds += data.seconds || 0;
    graph.leave(event.actor, data.error ? "failed" : "done", data.error || "");
    for (const to of data.next ?? []) graph.walked.add(`${data.node}\n${to}`);
  },
  "agent.started": (graph, data, event) => {
    if (graph.path === null && !data.depth) graph.enter(data.agent, event);
  },
  "agent.finished": (graph, data, event) => {
    if (graph.path === null) graph.leave(event.actor, data.error ? "failed" : "done", data.error || "");
  },
  "actor.stopped": (graph, data, event) =>
    graph.leave(event.actor, data.reason && data.reason !== "normal" ? "cancelled" : "done", ""),
  "actor.failed": (graph, data, event) => graph.leave(event.actor, "failed", data.error || ""),
  "question.asked": (graph, data, event) => {
    const place = [...graph.places].find(([path]) => event.actor === path || event.actor.startsWith(`${path}/`));
    if (!place) return;
    graph.at(place[1]).asked++;
    graph.asked.set(event.id, place[1]);
    graph.version++;
  },
  "question.answered": (graph, data, event) => graph.settle(event.id),
  "question.expired": (graph, data, event) => graph.settle(event.id),
};
