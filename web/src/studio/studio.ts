// The Studio: what it opens with is in the page, as JSON.
import { mount } from "svelte";
import type { Start } from "./api";
import App from "./App.svelte";
import { Studio } from "./state.svelte";
import "./studio.css";

const start = JSON.parse(document.getElementById("start")!.textContent!) as Start;
mount(App, { target: document.getElementById("studio")!, props: { studio: new Studio(start) } });
