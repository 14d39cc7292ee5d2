"use strict";
// The few things a page cannot do without a script: the token, the end of a job, words of a slider.
const body = document.body;
if (body.dataset.enter !== undefined) {
  const token = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  fetch("enter", { method: "POST", body: token }).then((answer) => {
    if (answer.ok) location.replace("data");
    else document.getElementById("entering").textContent = "This link was used already. Open the file that masquerade studio names once more.";
  });
}
document.addEventListener("over", () => location.reload());
document.addEventListener("input", (event) => {
  if (event.target.id === "eps") document.getElementById("epsout").value = event.target.value;
});
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});
