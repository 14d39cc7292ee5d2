"use strict";
// What a page needs a script for: the token, the progress of a job, the text of a slider.
const body = document.body;
if (body.dataset.enter !== undefined) {
  const token = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  fetch("enter", { method: "POST", body: token }).then((answer) => {
    if (answer.ok) location.replace("data");
    else document.getElementById("entering").textContent = "This link was already used. Open the file that masquerade studio printed again.";
  });
}
for (const place of document.querySelectorAll("[data-events]")) {
  const source = new EventSource(place.dataset.events);
  source.addEventListener("message", (event) => {
    place.querySelector("progress").value = Number(event.data);
    place.querySelector(".share").textContent = `${Math.round(100 * Number(event.data))}%`;
  });
  source.addEventListener("over", () => { source.close(); location.reload(); });
}
document.addEventListener("input", (event) => {
  const moved = event.target;
  if (moved.id === "eps") document.getElementById("epsout").value = moved.value;
  if (moved.type === "range" && moved.list) moved.setAttribute("aria-valuetext", moved.list.options[moved.value].label);
});
document.addEventListener("click", (event) => {
  const { all } = event.target.dataset;
  if (all === undefined) return;
  for (const use of event.target.form.querySelectorAll("select[name=use]")) use.value = all;
});
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});
