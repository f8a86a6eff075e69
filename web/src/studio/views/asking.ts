// What views that look inside ask about: the text, and how its output was found. What is changed inside the model while
// it works (heads that are off, attention set by hand) is not: they show the model as it is.
import type { Options } from "../api";
import type { Studio } from "../state.svelte";

export function output(studio: Studio): Options | null {
  if (!studio.text) return null;
  const { off: _, attend: __, ...how } = studio.how;
  return { text: studio.text, ...how, ...studio.length };
}

export function isChanged(studio: Studio): boolean {
  return (studio.how.off?.length ?? 0) > 0 || studio.how.attend !== undefined;
}
