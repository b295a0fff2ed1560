"use strict";
// Draws the facts, again whenever something is chosen. `release_ray/report/facts.py` describes them.
(function () {
  const runs = JSON.parse(document.getElementById("facts").textContent);
  const byId = (id) => document.getElementById(id);
  const chosen = { run: 0, task: "", filter: "", axis: "trials", round: -1 };
  const colours = ["#1864ab", "#e8590c", "#2b8a3e", "#9c36b5", "#c92a2a", "#0b7285", "#846358", "#5f3dc4", "#d6336c", "#66a80f"];
  const several = runs.length > 1;

  const run = () => runs[chosen.run];
  const tasks = () => run().tasks.filter((task) => task.name.toLowerCase().includes(chosen.filter));
  const focus = () => {
    const shown = tasks();
    return shown.find((task) => task.name === chosen.task) || shown[0];
  };
  // Plotly reads some HTML in its texts; a name is only a name.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");

  function draw(id, traces, layout, reason) {
    const place = byId(id);
    place.classList.toggle("empty", !traces.length);
    if (!traces.length) {
      Plotly.purge(place);
      place.textContent = reason;
      return;
    }
    if (place.classList.contains("js-plotly-plot") === false) place.textContent = "";
    const basis = {
      margin: { l: 56, r: 12, t: 32, b: 44 },
      font: { family: "system-ui, sans-serif", size: 12 },
      legend: { orientation: "h", y: 1, yanchor: "bottom", traceorder: "normal" },
      hoverlabel: { namelength: -1 },
      colorway: colours,
    };
    Plotly.react(place, traces, { ...basis, ...layout }, { responsive: true, displaylogo: false, displayModeBar: false });
  }

  function latency() {
    const known = runs.filter((one) => one.latency_ms.tuned !== null);
    const bar = (what, colour) => ({
      type: "bar", orientation: "h", name: what, marker: { color: colour },
      y: known.map((one) => plain(one.name)), x: known.map((one) => one.latency_ms[what]),
      text: known.map((one) => (one.latency_ms[what] === null ? "" : `${Number(one.latency_ms[what].toPrecision(4))} ms`)),
      textposition: "auto",
    });
    const traces = known.length ? [bar("tuned", colours[0]), bar("default", "#adb5bd")] : [];
    draw("latency", traces, {
      xaxis: { title: { text: "ms, logarithmic" }, type: "log", dtick: "D2" },
      yaxis: { automargin: true, showticklabels: several },
    }, "Not known: the run has not ended, or measured no whole network.");
  }

  function time() {
    const parts = ["search", "build", "run", "other"];
    const spent = runs.some((one) => parts.some((part) => one.cpu_s[part] > 0));
    const traces = !spent ? [] : parts.map((part, index) => ({
      type: "bar", orientation: "h", name: part, marker: { color: colours[index] },
      y: runs.map((one) => plain(one.name)), x: runs.map((one) => one.cpu_s[part]),
    }));
    draw("time", traces, {
      barmode: "stack", xaxis: { title: { text: "CPU-seconds" } },
      yaxis: { automargin: true, showticklabels: several },
    }, "Nothing is known yet.");
  }

  function list() {
    const body = byId("list").tBodies[0];
    const marked = focus();
    body.replaceChildren(...tasks().map((task) => {
      const row = document.createElement("tr");
      row.classList.toggle("chosen", chosen.task !== "" && task === marked);
      const cells = [
        task.name, task.weight, task.mflops.toFixed(1), task.trials,
        task.best_ms === null ? "–" : task.best_ms.toPrecision(4),
        task.gflops ? task.gflops.toFixed(1) : "–", `${(100 * task.share).toFixed(1)} %`,
      ];
      row.append(...cells.map((text) => Object.assign(document.createElement("td"), { textContent: text })));
      row.addEventListener("click", () => choose({ task: chosen.task === task.name ? "" : task.name }));
      return row;
    }));
  }

  // The best so far is a staircase: it holds until the next is found, and to the end.
  function staircase(one, task, value) {
    const seconds = chosen.axis === "seconds";
    const x = task.curve.map((step) => step[seconds ? 1 : 0]);
    const y = task.curve.map((step) => value(step[2]));
    const end = seconds ? one.wall_s : task.trials;
    if (x.length && end > x[x.length - 1]) {
      x.push(end);
      y.push(y[y.length - 1]);
    }
    return { x, y, mode: "lines", line: { shape: "hv" } };
  }

  function curves() {
    const single = tasks().find((task) => task.name === chosen.task);
    let traces = [];
    if (single) {
      const same = runs.flatMap((one) => one.tasks
        .filter((task) => task.name === single.name && task.curve.length).map((task) => [one, task]));
      const rate = single.mflops > 0;
      traces = same.map(([one, task]) => ({
        ...staircase(one, task, (ms) => (rate ? task.mflops / ms : ms)), name: plain(one.name), showlegend: several,
      }));
      draw("curves", traces, {
        xaxis: { title: { text: chosen.axis }, rangemode: "tozero" },
        yaxis: { title: { text: rate ? "GFLOPS" : "ms" }, rangemode: "tozero" },
      }, "Nothing was measured of this task.");
      return;
    }
    traces = tasks().filter((task) => task.curve.length).map((task) => ({
      ...staircase(run(), task, (ms) => task.best_ms / ms), name: plain(task.name), showlegend: false,
    }));
    draw("curves", traces, {
      xaxis: { title: { text: chosen.axis }, rangemode: "tozero" },
      yaxis: { title: { text: "share of the task's best" }, range: [0, 1.03] },
    }, "Nothing was measured of these tasks.");
  }

  function importance() {
    const task = focus();
    const knobs = task ? [...task.importance].reverse() : [];
    draw("importance", !knobs.length ? [] : [{
      type: "bar", orientation: "h", y: knobs.map((knob) => knob[0]), x: knobs.map((knob) => knob[1]),
    }], {
      title: { text: task ? plain(task.name) : "", font: { size: 12 }, x: 0.01 },
      xaxis: { tickformat: ".0%" }, yaxis: { automargin: true },
    }, "Too little was measured of this task to tell.");
  }

  function clusters() {
    const task = focus();
    const rounds = (task && run().rounds[task.name]) || [];
    const slider = byId("round");
    const index = chosen.round < 0 ? rounds.length - 1 : Math.min(chosen.round, rounds.length - 1);
    slider.max = Math.max(0, rounds.length - 1);
    slider.value = index;
    slider.disabled = rounds.length < 2;
    if (!rounds.length) {
      byId("round-name").textContent = "";
      draw("clusters", [], {}, "No policy has proposed anything for this task: its rounds were left to chance.");
      return;
    }
    const round = rounds[index];
    const found = round.clusters ? `, ${round.clusters} clusters` : "";
    byId("round-name").textContent = `${task.name}, round ${round.round}${found}, ${round.candidates} sent`;
    const rows = round.map.candidates;
    draw("clusters", [
      {
        mode: "markers", name: "proposed", x: rows.map((row) => row[0]), y: rows.map((row) => row[1]),
        text: rows.map((row) => `fitness ${row[2]}, cluster ${row[3] < 0 ? "none" : row[3]}`), hoverinfo: "text",
        marker: { size: 8, opacity: 0.75, color: rows.map((row) => (row[3] < 0 ? "#868e96" : colours[row[3] % colours.length])) },
      },
      {
        mode: "markers", name: "measured", x: round.map.chosen.map((row) => row[0]), y: round.map.chosen.map((row) => row[1]),
        hoverinfo: "name", marker: { symbol: "x-thin", size: 11, line: { width: 2, color: "#000" } },
      },
    ], { showlegend: false, margin: { l: 12, r: 12, t: 8, b: 12 }, xaxis: { showticklabels: false, zeroline: false }, yaxis: { showticklabels: false, zeroline: false } });
  }

  function failures() {
    const kinds = [...new Set(runs.flatMap((one) => Object.keys(one.failures)))];
    const traces = !kinds.length ? [] : runs.map((one) => ({
      type: "bar", name: plain(one.name), showlegend: several, x: kinds, y: kinds.map((kind) => one.failures[kind] || 0),
    }));
    draw("failures", traces, { yaxis: { title: { text: "candidates" } } }, "None.");
    byId("messages").tBodies[0].replaceChildren(...run().messages.map((said) => {
      const row = document.createElement("tr");
      const cells = [`${said.count} ×`, said.status, said.message];
      row.append(...cells.map((text) => Object.assign(document.createElement("td"), { textContent: text })));
      return row;
    }));
  }

  function devices() {
    const { edges_s: x, busy, building } = run().devices;
    const names = Object.keys(busy);
    const lines = names.map((name) => ({
      x, y: busy[name], name: plain(name), mode: "lines", line: { shape: "hv" }, showlegend: names.length <= 8,
    }));
    const builders = { x, y: building, name: "building", mode: "lines", line: { shape: "hv", dash: "dot", color: "#868e96" }, yaxis: "y2" };
    draw("devices", names.length ? [...lines, builders] : [], {
      margin: { l: 56, r: 56, t: 32, b: 44 },
      xaxis: { title: { text: "seconds" } },
      yaxis: { title: { text: "busy" }, tickformat: ".0%", range: [0, 1.03] },
      yaxis2: { title: { text: "builds at once" }, overlaying: "y", side: "right", rangemode: "tozero", showgrid: false },
    }, "Nothing was measured.");
  }

  function options(select, entries, value) {
    select.replaceChildren(...entries.map(([key, text]) => Object.assign(document.createElement("option"), { value: key, textContent: text })));
    select.value = value;
  }

  function choose(change) {
    Object.assign(chosen, change);
    if (!("round" in change)) chosen.round = -1;
    if (!tasks().some((task) => task.name === chosen.task)) chosen.task = "";
    options(byId("task"), [["", "all"], ...tasks().map((task) => [task.name, task.name])], chosen.task);
    [list, curves, importance, clusters, failures, devices].forEach((part) => part());
  }

  if (several) {
    options(byId("run"), runs.map((one, index) => [index, one.name]), 0);
    byId("run").addEventListener("change", (event) => choose({ run: Number(event.target.value) }));
  }
  byId("task").addEventListener("change", (event) => choose({ task: event.target.value }));
  byId("filter").addEventListener("input", (event) => choose({ filter: event.target.value.trim().toLowerCase() }));
  byId("round").addEventListener("input", (event) => choose({ round: Number(event.target.value) }));
  document.getElementsByName("axis").forEach((radio) => radio.addEventListener("change", (event) => choose({ axis: event.target.value })));
  latency();
  time();
  choose({});
})();
