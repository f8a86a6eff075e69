// The tour: how a Transformer works, in the order of a lecture, on the page itself and with the model that ships. Each
// step sets what the page shows, and points at what to see. What the texts say of the model is tested in the browser.
import type { Focus } from "../../focus.svelte";
import type { Choice } from "../../trace";
import type { Studio } from "../state.svelte";

export const RUN = "en-de";
export const TEXT = "The bank raised its interest rates.";

export interface Step {
  title: string;
  says: string[]; // paragraphs
  shows: (studio: Studio) => void;
  at: string; // what is pointed at
}

const ALIGNING: Choice = { layer: 2, head: 3 };
const WORD = 4; // Zinssätze, counted in words
const [INTEREST, RATES] = [4, 5]; // counted in pieces
const CLOSE = 6; // the step that writes the first piece of Zinssätze, which is not the likeliest one

function reads(studio: Studio, kind: string, form: "lines" | "matrix", token: Focus["pinned"]) {
  studio.view = "read";
  const { focus } = studio;
  focus.heads.kind = kind;
  focus.form = form;
  focus.reading = "words";
  focus.beneath = "entropy";
  focus.hovered = null;
  focus.pinned = token;
}

function unfolds(studio: Studio, cell: object | null) {
  studio.view = "inside";
  studio.focus.reading = "pieces";
  studio.focus.pinned = { stack: "encoder", place: INTEREST };
  studio.focus.heads.choose("encoder.self", { layer: 0, head: 0 });
  studio.set("inside", { part: "encoder.0.self", cell, row: INTEREST });
}

function decodes(studio: Studio) {
  studio.view = "decode";
  studio.focus.pinned = undefined;
  studio.set("decode", { step: CLOSE, temperature: 1, top_k: null, top_p: 1 });
}

export const STEPS: Step[] = [
  {
    title: "Why attention",
    says: [
      "This model has just translated the sentence above. To write “Zinssätze” it looked back at the whole English sentence, and read “interest” and “rates” most: the wider a line, the more.",
      "A recurrent network would have squeezed the sentence into one state, word after word. Attention looks directly at every word, however far away.",
    ],
    shows: (studio) => {
      studio.focus.heads.choices["decoder.cross"] = ALIGNING;
      reads(studio, "decoder.cross", "lines", { stack: "written", place: WORD });
    },
    at: ".stage",
  },
  {
    title: "Query, key, value",
    says: [
      "This is the first layer of the encoder, unfolded. Each token is turned into three vectors: a query, what it looks for; a key, what it has to offer; and a value, what it gives.",
      "A query is compared with all keys. Where both fit, the score is high.",
    ],
    shows: (studio) => unfolds(studio, null),
    at: ".unfolded .tables .line",
  },
  {
    title: "Divided by √d",
    says: [
      "A score is the sum of the products of a query and a key, number by number, divided by √d, where d is how many numbers they have. The sum that made one score stands beside the tables.",
      "Longer vectors have larger sums. Without √d, the softmax would give nearly everything to one token, and its gradient would vanish.",
    ],
    shows: (studio) => unfolds(studio, { point: "encoder.0.self.scores", token: INTEREST, at: RATES, head: 0 }),
    at: ".unfolded aside",
  },
  {
    title: "Softmax and weighted sum",
    says: [
      "The softmax makes weights of the scores of a row: none is below 0, and all sum to 1. The values are multiplied by them and added up.",
      "So each token takes in a mixture of what the others give. What a word means now depends on the words around it.",
    ],
    shows: (studio) => unfolds(studio, null),
    at: ".unfolded .tables .line:nth-of-type(2)",
  },
  {
    title: "Many heads",
    says: [
      "One head can mix in one way only, so there are several in each layer. These are all heads of the encoder over this sentence, a small map each.",
      "Some look at the word before or after, some at the whole sentence. Choose one to see what it reads.",
    ],
    shows: (studio) => reads(studio, "encoder.self", "lines", undefined),
    at: ".heads",
  },
  {
    title: "Positions",
    says: [
      "Attention sees all tokens at once and does not know their order: to it, “dog bites man” and “man bites dog” are the same.",
      "So something has to say where each token stands. This model adds a row of sines and cosines to each embedding, one row for each position; the nearer two positions are, the more alike are their rows.",
    ],
    shows: (studio) => {
      studio.view = "positions";
      studio.focus.pinned = undefined;
      studio.set("positions", { stack: "encoder", token: null });
    },
    at: ".scheme",
  },
  {
    title: "The mask",
    says: [
      "The decoder writes from left to right, so a token must not read those that come after it. The mask sets their scores to minus infinity, and their weights are 0.",
      "That is why the map of the decoder's self-attention is empty above the diagonal. In training all positions can then be learned at once.",
    ],
    shows: (studio) => reads(studio, "decoder.self", "matrix", null),
    at: "[role=application]",
  },
  {
    title: "Cross-attention",
    says: [
      "Here the two sentences meet: queries come from what is being written, keys and values from what was read.",
      "Point at any German word to see which English words it came from. This head, the sharpest one, has found an alignment that nobody taught it.",
    ],
    shows: (studio) => {
      studio.focus.heads.choices["decoder.cross"] = ALIGNING;
      reads(studio, "decoder.cross", "lines", { stack: "written", place: WORD });
    },
    at: ".stage",
  },
  {
    title: "Greedy decoding",
    says: [
      "In the end the model gives a probability to every token of its vocabulary. Greedy decoding takes the likeliest one, appends it, and goes on. In this step that is “·In”; what was written, in bold, was found by the search of the next step.",
      "Click another candidate: it is written instead, and the model has to go on from there.",
    ],
    shows: decodes,
    at: ".candidates",
  },
  {
    title: "Beam search",
    says: [
      "The likeliest next token may lead to a worse sentence. Beam search follows several beginnings at once and keeps the best few; the others are pruned.",
      "The tree shows every beginning that was tried. In this sentence the token that was written is not always the likeliest one of its step.",
    ],
    shows: decodes,
    at: ".search",
  },
  {
    title: "Now yours",
    says: [
      "Type a sentence of your own: everything on this page is computed from it. Your own models open with glassformer studio --run FOLDER.",
      "Switch a head off, force a word, look at how a model was trained, compare two. A link under Share brings back what you see.",
    ],
    shows: (studio) => {
      studio.focus.heads.choices = {};
      reads(studio, "decoder.cross", "lines", undefined);
    },
    at: "form",
  },
];
