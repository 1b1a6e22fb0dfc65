// The charts. Each figure element names its kind and its source of data, and is drawn again after a change.
"use strict";

const EVERY_MS = { busiest: 5000, port: 1000, flow: 1000 };
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const SCHEMES = { plain: "#d55e00", sdtcp: "#0072b2", sccp: "#009e73" };
const at = (ns) => new Date(ns / 1e6);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const isNarrow = () => innerWidth < 600;

function frame(extra) {
  const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
  const axis = { gridcolor: css("--rule"), zerolinecolor: css("--rule"), linecolor: css("--rule"), automargin: true };
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", uirevision: "kept", dragmode: "zoom",
    font: { color: css("--ink"), family: "system-ui, sans-serif", size: rem * (isNarrow() ? 0.7 : 0.82) },
    margin: { l: 60, r: 12, t: 48, b: 36 }, hovermode: "x unified",
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--rule"), font: { color: css("--ink") } },
    legend: { orientation: "h", y: 1.01, yanchor: "bottom", x: 0 },
  };
  for (const [name, value] of Object.entries(extra)) layout[name] = /^[xy]axis/.test(name) ? { ...axis, ...value } : value;
  if (isNarrow()) Object.assign(layout.xaxis, { nticks: 5, tickangle: 0 });
  return layout;
}

// A line is interrupted where samples are missing for a long time. A port has a row at least every ten seconds.
function withGaps(times, values, every) {
  const x = [], y = [];
  times.forEach((time, place) => {
    if (place && time - times[place - 1] > Math.max(10 * every, 25e9)) { x.push(at((time + times[place - 1]) / 2)); y.push(null); }
    x.push(at(time)); y.push(values[place]);
  });
  return { x, y };
}

const line = (times, values, every, more) => ({ type: "scatter", mode: "lines", ...withGaps(times, values, every), ...more });

function busiest(data) {
  const traces = data.ports.map((one, place) => line(one.at_ns, one.queue_pkts, one.every_ns, {
    name: one.port.name, line: { color: css(`--c${place % 6 + 1}`), dash: DASHES[place % 5], width: 2 },
  }));
  traces.push({
    type: "bar", name: "alarms per minute", x: data.alarms.at_ns.map(at), y: data.alarms.alarms, yaxis: "y2",
    width: data.alarms.every_ns / 1e6 * 0.8, marker: { color: css("--alarm"), pattern: { shape: "/" } },
  });
  return [traces, frame({
    xaxis: { range: [at(data.since_ns), at(data.until_ns)], anchor: "y2" },
    yaxis: countAxis("queue, packets", [0.36, 1], 10),
    yaxis2: countAxis("alarms", [0, 0.26]),
  })];
}

// An axis for counts: it starts at zero, and shows whole numbers even if every value is zero.
const countAxis = (text, domain, least = 4) => ({ title: { text }, domain, rangemode: "tozero", autorangeoptions: { include: [0, least] } });

function queueTraces(data, yaxis) {
  const figures = data.figures;
  const raised = data.alarms.filter((one) => one.kind === "alarm");
  const over = data.alarms.filter((one) => one.kind !== "alarm");
  const marks = (some, name, symbol, color) => ({
    type: "scatter", mode: "markers", name, yaxis, x: some.map((one) => at(one.crossing_ns)), y: some.map((one) => one.queue_pkts),
    marker: { symbol, size: 10, color, line: { color: css("--card"), width: 1 } },
  });
  return [
    line(figures.at_ns, figures.queue_pkts, figures.every_ns, { name: `queue of ${figures.port.name}, packets`, yaxis, line: { color: css("--c1"), width: 2 } }),
    marks(raised, "alarm", "triangle-up", css("--alarm")), marks(over, "end of alarm", "triangle-down", css("--c3")),
  ];
}

function port(data) {
  const figures = data.figures;
  const step = (values, yaxis, name, color, dash) => line(figures.at_ns, values, figures.every_ns, { yaxis, name, line: { color, dash, width: 2 } });
  const traces = [
    ...queueTraces(data, "y"),
    step(figures.n_i, "y2", "flows (N_i)", css("--c4"), "solid"),
    step(figures.fair_share_bytes.map((value) => value / 1000), "y3", "fair share, kB", css("--c3"), "dash"),
    { type: "bar", name: "drops", yaxis: "y4", x: figures.at_ns.map(at), y: figures.drops, marker: { color: css("--c2") } },
    ...data.clamps.slice().reverse().map((one) => ({
      type: "scatter", mode: "lines+markers", yaxis: "y5", showlegend: false, name: "window",
      x: [at(one.pushed_ns), at(one.lifted_ns ?? data.until_ns)], y: [one.flow, one.flow],
      line: { color: css("--c5"), width: 9 }, marker: { symbol: ["line-ns-open", one.lifted_ns ? "line-ns-open" : "triangle-right"], size: 11, color: css("--c5") },
      hovertemplate: `${one.flow}: ${one.window_bytes} B<br>${one.lift_reason ?? "in force"}<extra></extra>`,
    })),
  ];
  const named = data.clamps.length <= 12 && innerWidth > 900;
  const lane = (from, to) => data.clamps.length ? [from, to] : [(from - 0.3) / 0.7, (to - 0.3) / 0.7];
  return [traces, frame({
    xaxis: { range: [at(data.since_ns), at(data.until_ns)], anchor: data.clamps.length ? "y5" : "y4", showspikes: true },
    yaxis: countAxis("queue", lane(0.74, 1), 10),
    yaxis2: countAxis("N_i", lane(0.58, 0.71)),
    yaxis3: { title: { text: "share, kB" }, domain: lane(0.42, 0.55), rangemode: "tozero" },
    yaxis4: countAxis("drops", lane(0.3, 0.39)),
    yaxis5: { title: { text: "clamps" }, domain: [0, 0.27], type: "category", showticklabels: named },
  })];
}

// The windows of clamps as steps: from each decision to the next decision at the switch of the clamp, to the lift, or to the end.
function windows(clamps, story) {
  const x = [], y = [];
  const decided = story.decisions.slice().reverse();
  for (const clamp of clamps.slice().reverse()) {
    const end = clamp.lifted_ns ?? story.now_ns;
    const place = decided.find((one) => one.id === clamp.decision_id)?.entry.switch ?? clamp.port.dpid;
    const there = decided.filter((one) => one.entry.switch === place && one.decided_ns < end);
    const first = there.findLast((one) => one.decided_ns <= clamp.pushed_ns) ?? clamp;
    const set = [{ decided_ns: clamp.pushed_ns, window_bytes: first.window_bytes }, ...there.filter((one) => one.decided_ns > clamp.pushed_ns)];
    set.forEach((one) => { x.push(at(one.decided_ns)); y.push(one.window_bytes / 1000); });
    x.push(at(end), at(end)); y.push(set.at(-1).window_bytes / 1000, null);
  }
  return { x, y };
}

// A line for each port: a flow may have clamps at several ports at the same time.
function windowTraces(story) {
  const names = [...new Set(story.clamps.map((one) => one.port.name))];
  return names.map((name, place) => ({
    type: "scatter", mode: "lines+markers", name: names.length > 1 ? `window at ${name}, kB` : "window, kB",
    ...windows(story.clamps.filter((one) => one.port.name === name), story),
    line: { shape: "hv", color: css(place % 2 ? "--c6" : "--c5"), dash: DASHES[place % 5], width: 3 }, marker: { size: 8 }, connectgaps: false,
  }));
}

async function flow(story) {
  const now = story.now_ns;
  const seen = story.flow.closed_ns ?? now;
  const clamps = story.clamps;
  const last = clamps.length ? Math.max(...clamps.map((one) => one.lifted_ns ?? now)) : seen;
  const begun = clamps.length ? Math.min(...clamps.map((one) => one.pushed_ns)) : Math.max(story.flow.opened_ns, seen - 300e9);
  const margin = Math.max((last - begun) * 0.15, 3e9);
  const since = begun - margin, until = Math.min(last + margin, now);
  const place = clamps[0]?.port ?? story.path.map((hop) => hop.port).sort((a, b) => (b.queue_pkts ?? 0) - (a.queue_pkts ?? 0))[0];
  const traces = windowTraces(story);
  const lifted = clamps.filter((one) => one.lifted_ns);
  traces.push({
    type: "scatter", mode: "markers", name: "lifted", x: lifted.map((one) => at(one.lifted_ns)), y: lifted.map((one) => one.window_bytes / 1000),
    text: lifted.map((one) => one.lift_reason ?? ""), hovertemplate: "lifted: %{text}<extra></extra>", marker: { symbol: "x", size: 10, color: css("--c3") },
  });
  const ends = [["opened", story.flow.opened_ns], ["closed", story.flow.closed_ns]].filter(([, ns]) => ns);
  traces.push({
    type: "scatter", mode: "markers", name: "opened, closed", yaxis: "y2", x: ends.map(([, ns]) => at(ns)), y: ends.map(() => 0),
    text: ends.map(([what]) => what), hovertemplate: "%{text}<extra></extra>", cliponaxis: false, marker: { symbol: "diamond", size: 9, color: css("--dim") },
  });
  if (place) {
    const query = `span_s=${Math.min(604800, Math.max(10, Math.ceil((until - since) / 1e9)))}&until_ns=${BigInt(Math.round(until))}`;
    const answer = await fetch(`/api/v1/ports/${place.dpid}/${place.port_no}/series?${query}`);
    if (answer.ok) traces.push(...queueTraces(await answer.json(), "y2"));
  }
  return [traces, frame({
    xaxis: { range: [at(since), at(until)], anchor: "y2", type: "date" },
    yaxis: { title: { text: "window, kB" }, domain: clamps.length ? [0.55, 1] : [0.99, 1], rangemode: "tozero", visible: clamps.length > 0 },
    yaxis2: countAxis("queue, pkts", [0, clamps.length ? 0.45 : 0.98], 10),
  })];
}

function experiment(data, width) {
  const cases = [...new Set(data.rows.map((row) => row.title ?? row.case ?? `${row.workers} workers`))];
  const each = (width - 80) / cases.length;
  const folded = (name) => name.replace(new RegExp(`(.{1,${Math.max(8, Math.floor(each / 8))}})( |$)`, "g"), "$1<br>");
  const of = (scheme, read) => cases.map((name) => {
    const row = data.rows.find((one) => one.scheme === scheme && (one.title ?? one.case ?? `${one.workers} workers`) === name);
    return row ? read(row) : null;
  });
  const traces = data.schemes.map((scheme, place) => ({
    type: "bar", name: scheme, x: cases, y: of(scheme, (row) => row.qct_ms.p50),
    error_y: { type: "data", symmetric: false, array: of(scheme, (row) => Math.max(0, row.qct_ms.p99 - row.qct_ms.p50)), thickness: 1.5 },
    marker: { color: SCHEMES[scheme] ?? css(`--c${place % 6 + 1}`), pattern: { shape: ["", "/", ".", "x"][place % 4] } },
  }));
  traces.push({
    type: "scatter", mode: "markers", name: "ideal", x: cases, y: of(data.schemes[0], (row) => row.ideal_ms),
    marker: { symbol: "line-ew-open", size: each * 0.5, color: css("--ink"), line: { width: 3 } },
  });
  return [traces, frame({ yaxis: { title: { text: "p50 to p99, ms" }, rangemode: "tozero" }, xaxis: { tickmode: "array", tickvals: cases, ticktext: cases.map(folded), tickangle: 0 }, barmode: "group", hovermode: "closest" })];
}

const KINDS = { busiest, port, flow, experiment };
const CONFIG = {
  responsive: true, displaylogo: false, displayModeBar: true,
  modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
};

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.kind = figure.dataset.chart;
    this.next = 0;
    this.waiting = false;
    this.draw();
  }

  change() {
    if (this.waiting) return;
    this.waiting = true;
    setTimeout(() => this.draw(), Math.max(0, this.next - Date.now()));
  }

  async draw() {
    this.next = Date.now() + (EVERY_MS[this.kind] ?? 1000);
    try {
      const answer = await fetch(this.figure.dataset.source);
      if (!answer.ok) throw new Error((await answer.json()).detail);
      const [traces, layout] = await KINDS[this.kind](await answer.json(), this.figure.clientWidth);
      if (!this.plot) {
        this.plot = document.createElement("div");
        this.figure.replaceChildren(this.plot);
      }
      layout.height = this.figure.clientHeight;
      await Plotly.react(this.plot, traces, layout, CONFIG);
      this.figure.dataset.drawn = String(Number(this.figure.dataset.drawn ?? 0) + 1);
    } catch (error) {
      if (!this.plot) this.figure.textContent = `Cannot draw the chart: ${error.message}`;
    } finally {
      this.waiting = false;
    }
  }
}

addEventListener("DOMContentLoaded", () => {
  const charts = [...document.querySelectorAll("figure[data-chart]")].map((figure) => new Chart(figure));
  document.addEventListener("weir:change", () => charts.forEach((chart) => chart.change()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.draw()));
});
