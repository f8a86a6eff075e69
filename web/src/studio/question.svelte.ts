// A question that is asked again whenever its options change. While a newer answer is under way, the last one stays.
import { untrack } from "svelte";
import type { Answer } from "../unpack";
import { newAsker, type Options } from "./api";
import type { Studio } from "./state.svelte";

const PAUSE = 60; // milliseconds in which options may change again, as a slider's do

export class Question<Value> {
  value = $state.raw<Value | null>(null);
  asking = $state(false);
  refused = $state(false); // what was asked last has no answer: the value is that of an earlier question
}

// To be called while a component is made; `options` gives null as long as there is nothing to ask.
export function question<Header, Value>(
  studio: () => Studio,
  view: string,
  options: () => Options | null,
  read: (answer: Answer<Header>) => Value,
): Question<Value> {
  const found = new Question<Value>();
  const asker = newAsker();
  let before = "";
  $effect(() => {
    const asked = options();
    const run = studio().run;
    if (asked === null) return;
    const key = JSON.stringify([run, asked]);
    if (key === before) return;
    const leave = new AbortController();
    const timer = setTimeout(
      async () => {
        const answer = await studio().ask<Header>(view, asked, leave.signal, asker);
        if (leave.signal.aborted) return;
        found.asking = false;
        found.refused = answer === undefined;
        if (answer !== undefined) {
          before = key;
          found.value = read(answer);
        }
      },
      untrack(() => found.value) === null ? 0 : PAUSE,
    );
    found.asking = true;
    return () => {
      clearTimeout(timer);
      leave.abort();
    };
  });
  return found;
}
