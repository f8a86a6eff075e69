// The views of the Studio, in the order of their tabs. The server says which of them a run has.
import type { Component } from "svelte";
import type { Options } from "./api";
import type { Studio } from "./state.svelte";
import { output } from "./views/asking";
import Compare from "./views/Compare.svelte";
import Decoding from "./views/Decoding.svelte";
import Inside from "./views/Inside.svelte";
import Layers from "./views/Layers.svelte";
import Positions from "./views/Positions.svelte";
import Read from "./views/Read.svelte";
import Training from "./views/Training.svelte";
import { compared, trained } from "./saved";

export interface View {
  name: string; // as the server knows it
  title: string;
  component: Component<{ studio: Studio }>;
  reads?: false; // it has nothing to do with a text
  saved?: (studio: Studio) => { view: string; options: Options }[]; // answers that a saved file should have
}

export const VIEWS: View[] = [
  {
    name: "read",
    title: "Read & write",
    component: Read,
    saved: (studio) => [
      { view: "read", options: studio.asked! },
      { view: "read", options: { text: studio.text, ...studio.length } },
      { view: "effects", options: { text: studio.text } },
    ],
  },
  {
    name: "decode",
    title: "Decoding",
    component: Decoding,
    saved: (studio) => [
      { view: "decode", options: studio.asked! },
      { view: "decode", options: { text: studio.text, ...studio.length, brief: true } },
      { view: "decode", options: { ...studio.asked, beam: 1, brief: true } },
      { view: "vocabulary", options: {} },
    ],
  },
  {
    name: "inside",
    title: "Inside",
    component: Inside,
    saved: (studio) => [{ view: "inside", options: output(studio)! }, ...askedOf(studio, "inside.part")],
  },
  {
    name: "layers",
    title: "Layers",
    component: Layers,
    saved: (studio) => [{ view: "layers", options: output(studio)! }, ...askedOf(studio, "layers.")],
  },
  {
    name: "positions",
    title: "Positions & embeddings",
    component: Positions,
    saved: (studio) => [
      ...stacksOf(studio).flatMap((stack) => [
        { view: "positions", options: { stack } },
        { view: "embeddings", options: { ...output(studio), other: "", stack } },
      ]),
      ...askedOf(studio, "embeddings"),
    ],
  },
  { name: "training", title: "Training", component: Training, reads: false, saved: trained },
  { name: "compare", title: "Compare", component: Compare, saved: compared },
];

// What was asked of a view about this text, however long ago.
function askedOf(studio: Studio, view: string): { view: string; options: Options }[] {
  const own = studio.api.asked.filter((each) => each.run === studio.run && each.view.startsWith(view) && each.options.text === studio.text);
  return own.map(({ view, options }) => ({ view, options }));
}

function stacksOf(studio: Studio): string[] {
  return ["encoder", "decoder"].filter((each) => studio.about?.points.some((point) => point.startsWith(`${each}.`)));
}
