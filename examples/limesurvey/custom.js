// A LimeSurvey theme with masquerade: when the form is sent, what was chosen is replaced by what was drawn.
//
// Put this file, masquerade.js and mechanism.json into the theme's `scripts` folder, and into its `layout_global.twig`
//
//   <script type="module">
//     import { masked } from "{{ templateurl }}scripts/custom.js";
//     const made = await (await fetch("{{ templateurl }}scripts/mechanism.json")).json();
//     masked(document.querySelector("#limesurvey"), made, { pills: "123456X7X8", nights: "123456X7X9" });
//   </script>
//
// where the last argument says in which field (survey X group X question) a variable is asked. The questions are lists of
// radio buttons, mandatory, on one page ("All in one"), and their answer codes are the policy's categories.
// Switch off "Allow backward navigation", "Participants may save and resume later", statistics of time and logging of
// addresses: what LimeSurvey stores before this script runs is not masked.
import { disguise } from "./masquerade.js";

const radios = (form, field) => [...form.querySelectorAll('input[type="radio"]')].filter((one) => one.name === field);

// Replace the choices of a form by reports that are drawn of them; an error never shows an answer.
export async function mask(form, made, fields) {
  const known = made.columns.every((name, i) => name in made.categories && fields[name] && made.labels[i].length === made.categories[name].length);
  if (!known) throw new Error("every variable needs a field, and reports that are answers themselves");
  const codes = Object.fromEntries(made.columns.map((name) => {
    const chosen = radios(form, fields[name]).find((one) => one.checked);
    return [name, made.categories[name].indexOf(chosen?.value)];
  }));
  const without = made.columns.filter((name) => codes[name] < 0);
  if (without.length) throw new Error(`no answer, or none of the policy's categories: ${without.join(", ")}`);
  const reports = await disguise(made.mechanism, codes);
  made.columns.forEach((name, i) => {
    const drawn = radios(form, fields[name]).find((one) => one.value === made.labels[i][reports[i]]);
    drawn.checked = true;
  });
}

// Chance is drawn once: the form is hidden before, and a form that was masked is only ever sent again.
export function masked(form, made, fields) {
  let state = "open";
  form.addEventListener("submit", async (event) => {
    if (state === "masked") return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (state === "drawing") return;
    state = "drawing";
    form.style.visibility = "hidden"; // nobody is to see, and answer by, what was drawn
    try {
      await mask(form, made, fields);
    } catch (error) {
      state = "open";
      form.style.visibility = "";
      alert(error.message);
      return;
    }
    state = "masked";
    setTimeout(() => form.requestSubmit(event.submitter)); // not while the first submit is still being told about
  }, { capture: true });
}
