"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const PRINTED_WIDTH = 660; // fits between the margins of A4 [px]

function draw(name, figure) {
  Plotly.newPlot(name, figure.data, figure.layout, {
    responsive: true,
    displaylogo: false,
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
    toImageButtonOptions: { format: "svg", filename: name },
  });
}

function linkTimeAxes(charts) {
  let following = false;
  const follow = (leader, change) => {
    if (following || !Object.keys(change).some(key => key.startsWith("xaxis"))) return;
    const update = { "xaxis.range": [...leader.layout.xaxis.range] };
    following = true;
    Promise.all(charts.filter(chart => chart !== leader).map(chart => Plotly.relayout(chart, update)))
      .finally(() => { following = false; });
  };
  for (const chart of charts) chart.on("plotly_relayout", change => follow(chart, change));
}

function resizeAll(size) {
  for (const name of Object.keys(figures)) Plotly.relayout(name, size);
}

for (const [name, figure] of Object.entries(figures)) draw(name, figure);
for (const run of document.querySelectorAll(".linked")) linkTimeAxes([...run.querySelectorAll(".chart")]);
addEventListener("beforeprint", () => resizeAll({ width: PRINTED_WIDTH }));
addEventListener("afterprint", () => resizeAll({ width: null, autosize: true }));
