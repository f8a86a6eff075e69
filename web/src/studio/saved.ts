// What a file that is saved holds of the views that are about more than one run.
import type { Options } from "./api";
import type { Studio } from "./state.svelte";

type Asked = { view: string; options: Options };
const MOST = 100; // steps of a training at which it was looked at

// The runs whose curves are shown. In a file, those that were recorded.
export function trainedRuns(studio: Studio): string[] {
  const { runs } = studio.chosen("training", { runs: [studio.run] });
  return studio.api.live ? studio.runs.filter((run) => runs.includes(run)) : runs;
}

export function trained(studio: Studio): Asked[] {
  const runs = trainedRuns(studio);
  if (runs.length === 0) return [];
  const watched = runs.flatMap((run) => {
    const { text } = studio.chosen(`watched ${run}`, { text: 0 });
    return (studio.looks[run] ?? []).slice(-MOST).map((step) => ({ view: "watched", options: { runs: [run], step, text } }));
  });
  return [{ view: "training", options: { runs } }, ...watched];
}

// The run that the chosen one is compared with; none, if there is no other.
export function otherRun(studio: Studio): string {
  const { other } = studio.chosen("compare", { other: "" });
  if (!studio.api.live) return other;
  const others = studio.runs.filter((run) => run !== studio.run);
  return others.includes(other) ? other : (others[0] ?? "");
}

export function compared(studio: Studio): Asked[] {
  const other = otherRun(studio);
  const shown = studio.view === "compare"; // it loads the other run
  return other && shown ? [{ view: "compare", options: { text: studio.text, other } }] : [];
}
