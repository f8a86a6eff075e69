// A decoding from its packed form (studio/views/decode.py).
import type { Answer } from "../../../unpack";
import type { Node } from "./BeamTree.svelte";

export interface PackedDecoding {
  input: string;
  output: string;
  tokens: number[]; // of the output; the last may be the end
  texts: string[];
  source: string[]; // all that is read: of a run that goes on where a text ends, also what it wrote
  first: number; // of such a run: the place of the token after which the first one is written
  score: number | null; // log p, divided by the length to the power of the length penalty
  log_probabilities: (number | null)[];
  forced: number; // how many of them were given
  vocabulary: number;
  beam: number;
  length_penalty: number;
  tree?: { nodes: number; all: number };
}

export interface Decoding extends PackedDecoding {
  scores: Float32Array[]; // nothing, if only the output was asked for; of each step, log-probabilities, the highest first
  ids: ArrayLike<number>[]; // and the tokens that they are of
  nodes: Omit<Node, "text">[];
  total: number; // the log-probability of the output
}

// What is chosen in the view itself: the step, what acts on probabilities, and whether the tree shows what was pruned.
export type Chosen = { step: number; temperature: number; top_k: number | null; top_p: number; pruned: boolean };

const FATES = ["kept", "pruned", "finished"] as const;

export function decodingOf({ header, arrays }: Answer<PackedDecoding>): Decoding {
  const width = arrays.values?.shape[1] ?? 0;
  const rows = <Row>(data: { subarray: (from: number, to: number) => Row } | undefined) =>
    data ? header.tokens.map((_, step) => data.subarray(step * width, (step + 1) * width)) : [];
  const of = (name: string) => arrays[`node ${name}`]!.data;
  const nodes = Array.from({ length: header.tree?.nodes ?? 0 }, (_, place) => ({
    number: of("number")[place]!,
    parent: of("parent")[place]!,
    token: of("token")[place]!,
    log_probability: of("log_probability")[place]!,
    total: of("total")[place]!,
    score: of("score")[place]!,
    fate: FATES[of("fate")[place]!]!,
  }));
  return {
    ...header,
    scores: rows(arrays.values?.data as Float32Array | undefined),
    ids: rows(arrays.tokens?.data as Uint16Array | undefined),
    nodes,
    total: header.log_probabilities.reduce<number>((sum, each) => sum + (each ?? 0), 0),
  };
}
