// Draws HTML reports without a browser: runs the script of each page on a stand-in for the few functions of the DOM that
// it calls, and prints what it put into <main>. Any other call, and any error of the script, ends with exit code 1.
//
//   node render_report.js FILE|FOLDER...   (of a folder: all files)
//   REPORT_ACTS='[["click", "seconds"], ["input", "bf16"]]': what a user does then
"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm");

const escaped = (text) => text.replace(/[&<>"]/g, (c) => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})[c]);

class Element {
  constructor(name) {
    if (!/^[a-z][a-z0-9]*$/.test(name)) throw new Error(`no element: ${name}`);
    this.name = name;
    this.attributes = new Map();
    this.children = [];
    this.listeners = [];
    this.value = "";
  }
  setAttribute(name, value) {
    if (!/^[a-zA-Z-]+$/.test(name) || /^on/.test(name)) throw new Error(`no attribute: ${name}`);
    if (/NaN|Infinity|undefined/.test(value) && /^(d|x|y|width|height|style|class)$/.test(name)) {
      throw new Error(`${this.name} ${name}="${value.slice(0, 200)}"`);
    }
    this.attributes.set(name, ` ${name}="${escaped(value)}"`);
  }
  append(...children) {
    for (const child of children) {
      if (typeof child !== "string" && !(child instanceof Element)) throw new Error(`appended: ${child}`);
      this.children = this.children.filter((one) => typeof one === "string" || one !== child);  // it is moved
      this.children.push(child);
    }
  }
  addEventListener(name, listener) { this.listeners.push([name, listener]); }
  // What a user does: [event, the element's text or, to be typed into it, its value]. Returns whether it was heard.
  act(name, text) {
    let heard = false;
    for (const [event, listener] of this.listeners) {
      if (event !== name || (name === "click" && this.children.at(-1) !== text)) continue;
      this.value = text;
      listener();
      heard = true;
    }
    return this.children.map((child) => typeof child !== "string" && child.act(name, text)).some(Boolean) || heard;
  }
  toString() {
    const inside = this.children.map((child) => typeof child === "string" ? escaped(child) : child.toString()).join("");
    const end = ["tr", "p", "li", "h1", "h2", "h3", "figure", "section", "div"].includes(this.name) ? "\n" : "";
    return `<${this.name}${[...this.attributes.values()].join("")}>${inside}</${this.name}>${end}`;
  }
}

function drawn(html) {
  const data = new Map(), svgNamespace = {}, main = new Element("main");
  for (const [, id, text] of html.matchAll(/<script type="application\/json" id="(\w+)">([^]*?)<\/script/g)) {
    data.set(id, {textContent: text});
  }
  const document = {
    title: "",
    getElementById: (id) => data.get(id),
    querySelector: (name) => ({main, svg: {namespaceURI: svgNamespace}})[name],
    createElement: (name) => new Element(name),
    createElementNS(namespace, name) {
      if (namespace !== svgNamespace) throw new Error(`the namespace of ${name}`);
      return new Element(name);
    },
  };
  vm.runInNewContext(html.match(/<script>([^]*?)<\/script/)[1], {document});
  for (const [name, text] of JSON.parse(process.env.REPORT_ACTS ?? "[]")) {
    if (!main.act(name, text)) throw new Error(`nobody hears ${name} of ${text}`);
  }
  return `<title>${escaped(document.title)}</title>\n${main}\n`;
}

const files = process.argv.slice(2).flatMap((given) => fs.statSync(given).isDirectory()
  ? fs.readdirSync(given).map((name) => path.join(given, name)) : [given]);
for (const file of files) {
  try {
    process.stdout.write(drawn(fs.readFileSync(file, "utf8")));
  } catch (error) {
    console.error(`${file}: ${error.stack}`);
    process.exitCode = 1;
  }
}
