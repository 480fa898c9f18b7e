// Where the nodes of a graph go: layers from top to bottom, few crossings, lines with little bend. Pure.
//
// The usual way for layered drawings (Sugiyama): set aside the lines that lead back, put every node one layer below the
// last one that leads to it, give long lines a bend in each layer they pass, order every layer by where its neighbours
// are, and push apart what stands too close.

const SWEEPS = 8;

/** nodes: [{id, width, height}], edges: [{from, to, label}] -> {width, height, nodes: Map id -> {x, y}, edges: [{edge, points, back}]}.
 *  x and y are centres. Edges to nodes that there are not are left out. */
export function layout(nodes, edges, { gapX = 36, gapY = 48 } = {}) {
  const size = new Map(nodes.map((node) => [node.id, node]));
  const lines = edges.filter((edge) => size.has(edge.from) && size.has(edge.to)).map((edge) => ({ edge, back: false }));
  const layer = layersOf(nodes, lines);
  const { rows, chains, items } = withBends(nodes, lines, layer);
  const ties = tiesOf(chains);
  order(rows, ties);
  const centre = place(rows, ties, items, gapX);
  const tops = [];
  let y = 0;
  for (const row of rows) {
    const tall = Math.max(0, ...row.map((id) => items.get(id).height));
    tops.push(y + tall / 2);
    y += tall + gapY;
  }
  const at = (id) => ({ x: centre.get(id), y: tops[items.get(id).layer] });
  const placed = new Map(nodes.map((node) => [node.id, at(node.id)]));
  let right = Math.max(0, ...[...items].map(([id, item]) => centre.get(id) + item.width / 2));
  const drawn = chains.map(({ line, chain }) => ({
    edge: line.edge,
    back: false,
    points: ends(chain.map(at), items, chain),
  }));
  for (const line of lines.filter((each) => each.back)) {
    const [from, to] = [placed.get(line.edge.from), placed.get(line.edge.to)];
    const [a, b] = [size.get(line.edge.from), size.get(line.edge.to)];
    const lane = Math.max(from.x + a.width / 2, to.x + b.width / 2) + 22; // leads up on the right, clear of both
    const low = from.y === to.y ? 8 : 0;
    drawn.push({
      edge: line.edge,
      back: true,
      points: [
        { x: from.x + a.width / 2, y: from.y + low },
        { x: lane, y: from.y + low },
        { x: lane, y: to.y - low },
        { x: to.x + b.width / 2, y: to.y - low },
      ],
    });
    right = Math.max(right, lane + 8);
  }
  return { width: right, height: Math.max(0, y - gapY), nodes: placed, edges: drawn };
}

/** Lines begin below a node and end above the next. */
function ends(points, items, chain) {
  const [first, last] = [items.get(chain[0]), items.get(chain.at(-1))];
  points[0] = { x: points[0].x, y: points[0].y + first.height / 2 };
  points[points.length - 1] = { x: points.at(-1).x, y: points.at(-1).y - last.height / 2 };
  return points;
}

/** A layer for every node, so that all lines but those that lead back go down. */
function layersOf(nodes, lines) {
  const leaving = new Map(nodes.map((node) => [node.id, []]));
  for (const line of lines) leaving.get(line.edge.from).push(line);
  const finished = [];
  const state = new Map();
  for (const { id: root } of nodes) {
    if (state.has(root)) continue;
    state.set(root, "open");
    const trail = [[root, 0]];
    while (trail.length) {
      const top = trail[trail.length - 1];
      const line = leaving.get(top[0])[top[1]++];
      if (!line) {
        state.set(top[0], "done");
        finished.push(top[0]);
        trail.pop();
      } else if (state.get(line.edge.to) === "open") {
        line.back = true;
      } else if (!state.has(line.edge.to)) {
        state.set(line.edge.to, "open");
        trail.push([line.edge.to, 0]);
      }
    }
  }
  const layer = new Map(nodes.map((node) => [node.id, 0]));
  for (const id of finished.reverse())
    for (const line of leaving.get(id))
      if (!line.back) layer.set(line.edge.to, Math.max(layer.get(line.edge.to), layer.get(id) + 1));
  return layer;
}

/** The rows of nodes and bends, and for every line that leads down the chain of what it passes. */
function withBends(nodes, lines, layer) {
  const rows = Array.from({ length: Math.max(0, ...layer.values()) + (nodes.length ? 1 : 0) }, () => []);
  const items = new Map();
  const put = (id, row, width, height) => {
    items.set(id, { layer: row, width, height });
    rows[row].push(id);
  };
  for (const node of nodes) put(node.id, layer.get(node.id), node.width, node.height);
  const chains = [];
  lines.forEach((line, number) => {
    if (line.back) return;
    const chain = [line.edge.from];
    for (let row = layer.get(line.edge.from) + 1; row < layer.get(line.edge.to); row++) {
      const bend = `\n${number}:${row}`; // no node is called so: ids hold no line breaks
      put(bend, row, 12, 0);
      chain.push(bend);
    }
    chains.push({ line, chain: [...chain, line.edge.to] });
  });
  return { rows, chains, items };
}

function tiesOf(chains) {
  const ties = new Map();
  const of = (id) => ties.get(id) ?? ties.set(id, [[], []]).get(id);
  for (const { chain } of chains)
    for (let i = 1; i < chain.length; i++) {
      of(chain[i - 1])[1].push(chain[i]);
      of(chain[i])[0].push(chain[i - 1]);
    }
  return (id, side) => ties.get(id)?.[side] ?? [];
}

/** Sort every row by the mean place of its neighbours, downwards and upwards in turn. */
function order(rows, ties) {
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (let step = 1; step < rows.length; step++) {
      const row = down ? step : rows.length - 1 - step;
      const fixed = new Map(rows[down ? row - 1 : row + 1].map((id, place) => [id, place]));
      const key = new Map(
        rows[row].map((id, place) => [
          id,
          mean(
            ties(id, down ? 0 : 1).map((tie) => fixed.get(tie)),
            place,
          ),
        ]),
      );
      rows[row].sort((a, b) => key.get(a) - key.get(b));
    }
  }
}

function mean(places, otherwise) {
  return places.length ? places.reduce((sum, place) => sum + place, 0) / places.length : otherwise;
}

/** A horizontal centre for every item: near its neighbours, and clear of those beside it. */
function place(rows, ties, items, gap) {
  const centre = new Map();
  for (const row of rows) {
    let edge = 0;
    for (const id of row) {
      centre.set(id, edge + items.get(id).width / 2);
      edge += items.get(id).width + gap;
    }
  }
  for (let sweep = SWEEPS; sweep > 0; sweep--) {
    const side = sweep % 2;
    for (const row of side ? [...rows].reverse() : rows) {
      const wanted = row.map((id) =>
        mean(
          ties(id, side).map((tie) => centre.get(tie)),
          centre.get(id),
        ),
      );
      apart(row, wanted, items, gap).forEach((x, index) => centre.set(row[index], x));
    }
  }
  const left = Math.min(...[...centre].map(([id, x]) => x - items.get(id).width / 2), Infinity);
  for (const [id, x] of centre) centre.set(id, x - left);
  return centre;
}

/** The wanted centres, moved as little as the widths demand; the order stays. */
function apart(row, wanted, items, gap) {
  const needed = row.slice(1).map((id, i) => (items.get(row[i]).width + items.get(id).width) / 2 + gap);
  const fromLeft = [...wanted];
  needed.forEach((distance, i) => (fromLeft[i + 1] = Math.max(fromLeft[i + 1], fromLeft[i] + distance)));
  const fromRight = [...wanted];
  for (let i = needed.length - 1; i >= 0; i--) fromRight[i] = Math.min(fromRight[i], fromRight[i + 1] - needed[i]);
  return fromLeft.map((x, i) => (x + fromRight[i]) / 2);
}
